"""The shared words, pure: resources and quantities, states and their tables, feasibility, figures."""
