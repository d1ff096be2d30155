"""What frames travel over: memory inside a process, nng between processes of a host, WebSocket between hosts."""
