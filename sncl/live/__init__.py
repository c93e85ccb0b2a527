"""What runs look like in a terminal while they learn; made from what they tell, so that it costs them nothing."""
