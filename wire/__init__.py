"""What is said, and how it travels: messages, codec, envelopes, sessions, mailboxes, carriers, byte streams."""
