"""What a trained network is like: how flat its minimum is, what it makes of its inputs, whether it knows its errors."""
