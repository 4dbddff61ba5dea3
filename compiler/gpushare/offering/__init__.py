"""What is offered of a pool: its shares, caps and claims; the sharing modes; the back ends that offer shares to pods."""
