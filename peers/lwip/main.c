/* lwIP as a contender: its raw API in one thread, on a TAP device, frame by frame with checksums in software.
 *
 *   peer-lwip send|receive|echo --device NAME --peer A:P [--address A] [--mtu N] [--spin] [--seconds S]
 *
 * The words are those of every near end (docs/peers.md). */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

enum { CALL_BYTES = 128 * 1024, FRAME_BYTES = 1514, BATCH = 64, SLICES = 64 };

enum role { SEND, RECEIVE, ECHO };

static struct {
  enum role role;
  const char *device;
  ip4_addr_t address, peer;
  u16_t port;
  bool spin;
  double seconds;
} options = {.device = "ms-tap", .seconds = 30};

static int tap;
static struct netif interface;
static bool open_, over;
static char data[CALL_BYTES];

static void fail(const char *what) {
  fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* lwIP's clock, in milliseconds. */
u32_t sys_now(void) { return (u32_t)(now() * 1e3); }

static void parse(int count, char **words) {
  char host[64];
  unsigned port;
  if (count < 2) { errno = EINVAL; fail("a role is missing"); }
  if (!strcmp(words[1], "send")) options.role = SEND;
  else if (!strcmp(words[1], "receive")) options.role = RECEIVE;
  else if (!strcmp(words[1], "echo")) options.role = ECHO;
  else { errno = EINVAL; fail(words[1]); }
  ip4addr_aton("10.70.0.1", &options.address);
  for (int i = 2; i < count; i++) {
    if (!strcmp(words[i], "--spin")) { options.spin = true; continue; }
    const char *value = i + 1 < count ? words[i + 1] : "";
    bool good = true;
    if (!strcmp(words[i], "--device")) options.device = value;
    else if (!strcmp(words[i], "--seconds")) options.seconds = atof(value);
    else if (!strcmp(words[i], "--address")) good = ip4addr_aton(value, &options.address);
    else if (!strcmp(words[i], "--peer")) {
      good = sscanf(value, "%63[0-9.]:%u", host, &port) == 2 && ip4addr_aton(host, &options.peer);
      options.port = (u16_t)port;
    } else good = false;
    if (!good) { errno = EINVAL; fail(words[i]); }
    i++;
  }
}

static void open_tap(void) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (tap < 0) fail("/dev/net/tun");
  strncpy(request.ifr_name, options.device, IFNAMSIZ - 1);
  if (ioctl(tap, TUNSETIFF, &request) < 0) fail(options.device);
}

/* One frame out: a system call, straight from the pbufs. */
static err_t output(struct netif *netif, struct pbuf *p) {
  struct iovec slices[SLICES];
  int count = 0;
  (void)netif;
  for (; p != NULL && count < SLICES; p = p->next)
    slices[count++] = (struct iovec){.iov_base = p->payload, .iov_len = p->len};
  return writev(tap, slices, count) < 0 ? ERR_IF : ERR_OK;
}

static err_t set_up(struct netif *netif) {
  static const u8_t mac[6] = {0x02, 0x6d, 0x73, 0, 0, 1};
  netif->name[0] = 'm';
  netif->name[1] = 's';
  netif->output = etharp_output;
  netif->linkoutput = output;
  netif->mtu = 1500;
  netif->hwaddr_len = sizeof mac;
  memcpy(netif->hwaddr, mac, sizeof mac);
  netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
  return ERR_OK;
}

/* Frames in, each read straight into a pbuf; how many. */
static int input(void) {
  static struct pbuf *spare;
  int count = 0;
  for (; count < BATCH; count++) {
    if (spare == NULL) spare = pbuf_alloc(PBUF_RAW, FRAME_BYTES, PBUF_POOL);
    if (spare == NULL) break;
    ssize_t length = read(tap, spare->payload, FRAME_BYTES);
    if (length <= 0) break;
    spare->len = spare->tot_len = (u16_t)length;
    if (interface.input(spare, &interface) != ERR_OK) pbuf_free(spare);
    spare = NULL;
  }
  return count;
}

/* Gives the connection as much as it takes. */
static void fill(struct tcp_pcb *pcb) {
  while (tcp_sndbuf(pcb) >= TCP_MSS && tcp_sndqueuelen(pcb) < TCP_SND_QUEUELEN - 64) {
    u16_t length = (u16_t)LWIP_MIN(tcp_sndbuf(pcb), 40 * TCP_MSS);
    if (tcp_write(pcb, data, length, TCP_WRITE_FLAG_COPY) != ERR_OK) break;
  }
  tcp_output(pcb);
}

static err_t on_sent(void *argument, struct tcp_pcb *pcb, u16_t length) {
  (void)argument;
  (void)length;
  if (options.role == SEND) fill(pcb);
  return ERR_OK;
}

static err_t on_received(void *argument, struct tcp_pcb *pcb, struct pbuf *p, err_t error) {
  (void)argument;
  (void)error;
  if (p == NULL) {
    over = true;
    return ERR_OK;
  }
  /* What a call of recv would do: the bytes are copied out. */
  u16_t length = pbuf_copy_partial(p, data, p->tot_len, 0);
  tcp_recved(pcb, length);
  pbuf_free(p);
  if (options.role == ECHO) {
    tcp_write(pcb, data, length, TCP_WRITE_FLAG_COPY);
    tcp_output(pcb);
  }
  return ERR_OK;
}

static void on_error(void *argument, err_t error) {
  (void)argument;
  if (!open_) fprintf(stderr, "error: not connected (%d)\n", error);
  over = true;
}

static err_t on_connected(void *argument, struct tcp_pcb *pcb, err_t error) {
  (void)argument;
  (void)error;
  open_ = true;
  tcp_nagle_disable(pcb);
  if (options.role == SEND) fill(pcb);
  return ERR_OK;
}

int main(int count, char **words) {
  ip4_addr_t mask, none = {0};
  parse(count, words);
  open_tap();
  lwip_init();
  ip4addr_aton("255.255.255.0", &mask);
  netif_add(&interface, &options.address, &mask, &none, NULL, set_up, ethernet_input);
  netif_set_default(&interface);
  netif_set_up(&interface);
  struct tcp_pcb *pcb = tcp_new();
  tcp_sent(pcb, on_sent);
  tcp_recv(pcb, on_received);
  tcp_err(pcb, on_error);
  if (tcp_connect(pcb, &options.peer, options.port, on_connected) != ERR_OK) fail("connect");
  double end = now() + options.seconds;
  while (!over && now() < end) {
    int frames = input();
    sys_check_timeouts();
    if (frames == 0 && !options.spin) {
      struct pollfd ready = {.fd = tap, .events = POLLIN};
      poll(&ready, 1, (int)LWIP_MIN(sys_timeouts_sleeptime(), 250));
    }
  }
  printf("{\"version\":\"lwip %s\",\"window\":%d}\n", LWIP_DEBIAN_VERSION, TCP_WND);
  return open_ ? 0 : 1;
}
