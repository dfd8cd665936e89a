/* What a guest needs before its first program. */
#pragma once

/* Mounts, loads the modules of /modules/list, brings `lo` up, and keeps RDPMC to ring 0. */
void boot(void);

/* The agent's port, opened, or -errno: -ENODEV if there is none. */
int open_port(void);
