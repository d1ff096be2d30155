"""The gateway: where streams and HTTP end. It says who speaks, and relays between peers and whoever leads."""
