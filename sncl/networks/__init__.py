"""Networks, and what can be put on any network: taps that read layers and gates that close neurons."""
