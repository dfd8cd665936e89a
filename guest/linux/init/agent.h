/* The agent: serves the client of one connection. */
#pragma once

/* Serves until the connection ends, or the client powers the guest off: 1. */
int agent(int fd);
