"""One folder a concern; in each a pure policy and the actor that performs its decisions."""
