"""The schema, one file a step: NNNN_name.sql, never changed once released."""
