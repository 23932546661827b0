/* lwIP as it is fastest here: one thread without an operating system layer, pools instead of a heap, large
 * windows, checksums summed while copying. docs/peers.md has the sweep of the window. */
#ifndef LWIPOPTS_H
#define LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_STATS 0
#define LWIP_NOASSERT 1
#define LWIP_UDP 0
#define LWIP_RAW 0
#define LWIP_IPV6 0
#define IP_REASSEMBLY 0
#define IP_FRAG 0

#define MEM_ALIGNMENT 8
#define MEM_SIZE (64 * 1024 * 1024)
#define ETH_PAD_SIZE 0

#define TCP_MSS 1460
#define LWIP_WND_SCALE 1
#define TCP_RCV_SCALE 7
#define TCP_WND (512 * 1024)
#define TCP_SND_BUF (128 * 1024)
#define TCP_SNDLOWAT 32768
#define TCP_SND_QUEUELEN 8192
#define MEMP_NUM_TCP_SEG 16384
#define MEMP_NUM_PBUF 16384
#define PBUF_POOL_SIZE 8192
#define PBUF_POOL_BUFSIZE 1536
#define LWIP_TCP_SACK_OUT 1
#define TCP_QUEUE_OOSEQ 1

/* The quick sum of 8 bytes at a time, and while copying. */
#define LWIP_CHKSUM_ALGORITHM 3
#define LWIP_CHECKSUM_ON_COPY 1

#endif
