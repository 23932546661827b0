/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Who opens connections, and who asks for names: counts by process and port of the peer. crates/observe/src/bpf/kernel/opened.rs
 * reads them.
 */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define IPPROTO_TCP 6
#define TCP_SYN_SENT 2
#define IPPROTO_UDP 17
#define DNS 53
/* Place of the destination's port in a header of UDP. */
#define DESTINATION 2

enum { CONNECTION, LOOK_UP };

struct key {
	u32 process;
	u16 port;
	u16 kind;
};

/* Those that find no room are not counted. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1024);
	TYPE(key, struct key);
	TYPE(value, u64);
} opened SEC(".maps");

struct sock_common {
	u16 skc_dport;
} KERNEL_TYPE;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
} KERNEL_TYPE;

struct sk_buff {
	struct sock *sk;
	u16 transport_header;
	unsigned char *head;
} KERNEL_TYPE;

#define READ(to, from) read_kernel(&(to), sizeof(to), &(from))

INLINE int count(u16 port, u16 kind)
{
	struct key key = { current_ids() >> 32, __builtin_bswap16(port), kind };
	u64 one = 1, *sum = map_lookup(&opened, &key);

	if (sum)
		__sync_fetch_and_add(sum, 1);
	else
		map_update(&opened, &key, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int inet_sock_set_state(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	u16 protocol = 0, port = 0;

	if ((int)ctx[2] != TCP_SYN_SENT)
		return 0;
	READ(protocol, sk->sk_protocol);
	READ(port, sk->__sk_common.skc_dport);
	return protocol == IPPROTO_TCP ? count(port, CONNECTION) : 0;
}

/* The ports of a datagram are read where a device takes it: a socket that is not connected does not know its peer. */
SEC("tp_btf/net_dev_queue")
int net_dev_queue(u64 *ctx)
{
	struct sk_buff *packet = (struct sk_buff *)ctx[0];
	struct sock *sk = packet->sk;
	u16 protocol = 0, port = 0;

	if (!sk)
		return 0;
	READ(protocol, sk->sk_protocol);
	if (protocol != IPPROTO_UDP)
		return 0;
	read_kernel(&port, sizeof(port), packet->head + packet->transport_header + DESTINATION);
	return port == __builtin_bswap16(DNS) ? count(port, LOOK_UP) : 0;
}
