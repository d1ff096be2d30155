"""Who leads: one replica at a time, by a row with an epoch. A reign is the life of the actors that decide."""

from .actor import LeaderActor
from .policy import BeginReign, Campaign, EndReign, Follow

__all__ = ["BeginReign", "Campaign", "EndReign", "Follow", "LeaderActor"]
