/* The load of `make truth`: two ends that do what a case needs, and print one figure.
 *
 *   truth_load serve MODE [options]      the other end; ends when it is killed
 *   truth_load MODE [options]            prints `figure N`: of stream and udp bits/s, of rr and crr transactions/s, of burst
 *                                        those in a second without the pauses, of batches bits/s
 *
 * MODE: stream, rr, crr, udp, burst (a megabyte, and a byte in answer, after each pause), batches (from 64 KiB to 4 MiB, the
 * larger ones later, with a byte in answer to each). Options: -a ADDRESS, -t SECONDS, -b BACKLOG, -m BYTES (allocated anew for each read),
 * -n (requests in two writes, Nagle's algorithm on), -T THREADS that share one UDP socket, -w MICROSECONDS between two
 * reads, or two writes of a stream, -c BYTES for each read or write of a stream, -R and -S BYTES of socket buffers,
 * -F FILTERS that each system call passes, -p (looks at all that is queued before each read of batches). `truth_load relay -a ADDRESS -o ADDRESS` stands before a server at the other
 * address. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5999, CHUNK = 128 << 10, DATAGRAM = 64, BURST = 1 << 20, BATCH = 1 << 16, LEVELS = 7 };
static const char *address = "127.0.0.1", *other = "127.0.0.2";
static double seconds = 1;
static int backlog = 4096, fresh_bytes, nagle, peeks, threads = 1, pause_us, receive_buffer, send_buffer, chunk = CHUNK;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int open_socket(int kind) {
  int fd = socket(AF_INET, kind, 0), one = 1;
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (receive_buffer) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  if (send_buffer) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
  if (kind == SOCK_STREAM && !nagle) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static struct sockaddr_in place(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  if (inet_pton(AF_INET, address, &at.sin_addr) != 1) fail(address);
  return at;
}

static int all(int fd, char *bytes, size_t length, int is_read) {
  while (length) {
    ssize_t n = is_read ? read(fd, bytes, length) : write(fd, bytes, length);
    if (n <= 0) return -1;
    bytes += n, length -= n;
  }
  return 0;
}

static void *serve_one(void *argument) {
  int fd = (int)(long)argument, one = 1;
  char mode = 0, request[2], *buffer = malloc(BURST);
  if (!nagle) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (all(fd, &mode, 1, 1) == 0 && mode == 'b') {
    while (all(fd, buffer, BURST, 1) == 0 && all(fd, request, 1, 0) == 0) {
    }
  } else if (mode == 'g') {
    char *queued = malloc(BATCH << LEVELS);
    for (size_t left; all(fd, (char *)&left, sizeof left, 1) == 0; all(fd, request, 1, 0))
      while (left) {
        if (peeks) recv(fd, queued, BATCH << LEVELS, MSG_PEEK);
        ssize_t n = read(fd, buffer, left < (size_t)chunk ? left : (size_t)chunk);
        if (n <= 0) return NULL;
        left -= n;
      }
    free(queued);
  } else if (mode == 's') {
    for (ssize_t n = 1; n > 0;) {
      char *into = fresh_bytes ? malloc(fresh_bytes) : buffer;
      size_t room = fresh_bytes ? fresh_bytes : chunk, had = 0;
      do {
        n = read(fd, into + had, room - had);
        if (n > 0) had += n;
      } while (fresh_bytes && n > 0 && had < room);
      if (fresh_bytes) free(into);
      if (pause_us) usleep(pause_us);
    }
  } else {
    while (all(fd, request, 2, 1) == 0 && all(fd, request, 1, 0) == 0) {
    }
  }
  free(buffer);
  close(fd);
  return NULL;
}

static void *drain(void *argument) {
  int fd = (int)(long)argument;
  char buffer[2048];
  for (;;) {
    recv(fd, buffer, sizeof buffer, 0);
    if (pause_us) usleep(pause_us);
  }
  return NULL;
}

static void start(void *(*work)(void *), long argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, (void *)argument)) fail("pthread_create");
  pthread_detach(thread);
}

static void serve(const char *mode) {
  struct sockaddr_in at = place();
  int is_udp = !strcmp(mode, "udp"), fd = open_socket(is_udp ? SOCK_DGRAM : SOCK_STREAM);
  if (bind(fd, (struct sockaddr *)&at, sizeof at)) fail("bind");
  if (is_udp) {
    for (int i = 0; i < threads; i++) start(drain, fd);
    for (;;) pause();
  }
  if (listen(fd, backlog)) fail("listen");
  for (;;) {
    int one = accept(fd, NULL, NULL);
    if (one < 0) continue;
    start(serve_one, one);
    if (pause_us && !strcmp(mode, "crr")) usleep(pause_us);
  }
}

static void *pass_on(void *argument) {
  struct pollfd ends[2] = {{.fd = (int)(long)argument, .events = POLLIN}, {.fd = open_socket(SOCK_STREAM), .events = POLLIN}};
  static __thread char buffer[CHUNK];
  struct sockaddr_in at = place();
  inet_pton(AF_INET, other, &at.sin_addr);
  int is_open = connect(ends[1].fd, (struct sockaddr *)&at, sizeof at) == 0;
  while (is_open && poll(ends, 2, -1) > 0)
    for (int i = 0; i < 2; i++)
      if (ends[i].revents) {
        ssize_t n = read(ends[i].fd, buffer, sizeof buffer);
        if (n <= 0 || all(ends[!i].fd, buffer, n, 0)) is_open = 0;
      }
  close(ends[0].fd), close(ends[1].fd);
  return NULL;
}

static void relay(void) {
  struct sockaddr_in at = place();
  int fd = open_socket(SOCK_STREAM);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, backlog)) fail("listen");
  for (;;) start(pass_on, accept(fd, NULL, NULL));
}

/* Filters that look at an argument, so that the kernel remembers no answer of theirs. */
static void filter_calls(int count) {
  static struct sock_filter rules[4002] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16)};
  for (int i = 1; i < 4001; i++) rules[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x7ffff000 + i, 0, 0);
  rules[4001] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {4002, rules};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  while (count-- > 0)
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}

/* A connection, or -1 where there is none within `patience` seconds (0: however long it takes). */
static int connected_within(char mode, double patience) {
  struct sockaddr_in at = place();
  struct timeval wait = {.tv_sec = patience, .tv_usec = (patience - (long)patience) * 1e6};
  int fd = open_socket(SOCK_STREAM);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  if (connect(fd, (struct sockaddr *)&at, sizeof at)) {
    close(fd);
    return -1;
  }
  if (all(fd, &mode, 1, 0)) fail("write");
  return fd;
}

static int connected(char mode) {
  int fd = connected_within(mode, 0);
  if (fd < 0) fail("connect");
  return fd;
}

static int transaction_fails(int fd) {
  char bytes[2] = {0};
  int failed = nagle ? all(fd, bytes, 1, 0) || all(fd, bytes + 1, 1, 0) : all(fd, bytes, 2, 0);
  return failed || all(fd, bytes, 1, 1);
}

static void transaction(int fd) {
  if (transaction_fails(fd)) fail("transaction");
}

static double end;
static long long counts[64];

static void *send_datagrams(void *argument) {
  static __thread char bytes[DATAGRAM];
  long *fd_and_place = argument;
  long fd = fd_and_place[0], at = fd_and_place[1];
  while (now() < end)
    for (int i = 0; i < 64; i++) counts[at] += send(fd, bytes, sizeof bytes, 0) > 0;
  return NULL;
}

static void *crr(void *argument) {
  long at = (long)argument;
  for (double left; (left = end - now()) > 0.001;) {
    /* Whoever gets no connection tries it until the end, as any load with a time limit does. */
    int fd = connected_within('r', left);
    if (fd < 0) continue;
    counts[at] += !transaction_fails(fd);
    close(fd);
  }
  return NULL;
}

int main(int words, char **word) {
  signal(SIGPIPE, SIG_IGN);
  int is_server = words > 1 && !strcmp(word[1], "serve");
  if (is_server) words--, word++;
  if (words < 2) return fprintf(stderr, "truth_load [serve] stream|rr|crr|udp|burst|batches [options]\n"), 2;
  const char *mode = word[1];
  for (int option; (option = getopt(words - 1, word + 1, "a:t:b:m:nT:c:w:R:S:o:F:p")) != -1;) {
    switch (option) {
      case 'a': address = optarg; break;
      case 't': seconds = atof(optarg); break;
      case 'b': backlog = atoi(optarg); break;
      case 'm': fresh_bytes = atoi(optarg); break;
      case 'n': nagle = 1; break;
      case 'T': threads = atoi(optarg); break;
      case 'c': chunk = atoi(optarg) > 0 && atoi(optarg) < CHUNK ? atoi(optarg) : CHUNK; break;
      case 'w': pause_us = atoi(optarg); break;
      case 'R': receive_buffer = atoi(optarg); break;
      case 'S': send_buffer = atoi(optarg); break;
      case 'o': other = optarg; break;
      case 'p': peeks = 1; break;
      case 'F': filter_calls(atoi(optarg)); break;
      default: return 2;
    }
  }
  if (threads < 1 || threads > 64) return 2;
  if (is_server) serve(mode);
  if (!strcmp(mode, "relay")) relay();
  double begin = now(), figure = 0;
  end = begin + seconds;
  pthread_t thread[64];
  long place_of[64][2];
  if (!strcmp(mode, "stream")) {
    int fd = connected('s');
    char *bytes = calloc(1, CHUNK);
    for (ssize_t n; now() < end; figure += n * 8.0) {
      if ((n = write(fd, bytes, chunk)) < 0) fail("write");
      if (pause_us) usleep(pause_us);
    }
  } else if (!strcmp(mode, "rr")) {
    int fd = connected('r');
    for (; now() < end; figure++) transaction(fd);
  } else if (!strcmp(mode, "burst")) {
    int fd = connected('b');
    char *bytes = calloc(1, BURST), answer;
    for (double paused = 0;; paused += pause_us / 1e6) {
      if (all(fd, bytes, BURST, 0) || all(fd, &answer, 1, 1)) fail("burst");
      figure++;
      if (now() >= end) {
        begin += paused;
        break;
      }
      usleep(pause_us);
    }
  } else if (!strcmp(mode, "batches")) {
    int fd = connected('g');
    char *bytes = calloc(1, BATCH << LEVELS), answer;
    for (double at; (at = now()) < end;) {
      size_t size = (size_t)BATCH << (int)(LEVELS * (at - begin) / seconds);
      if (all(fd, (char *)&size, sizeof size, 0) || all(fd, bytes, size, 0) || all(fd, &answer, 1, 1)) fail("batch");
      figure += size * 8.0;
    }
  } else if (!strcmp(mode, "udp")) {
    struct sockaddr_in at = place();
    int fd = open_socket(SOCK_DGRAM);
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) fail("connect");
    for (int i = 0; i < threads; i++) {
      place_of[i][0] = fd, place_of[i][1] = i;
      pthread_create(&thread[i], NULL, send_datagrams, place_of[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL), figure += counts[i] * 8.0 * DATAGRAM;
  } else if (!strcmp(mode, "crr")) {
    for (long i = 0; i < threads; i++) pthread_create(&thread[i], NULL, crr, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL), figure += counts[i];
  } else {
    return 2;
  }
  printf("figure %.3f\n", figure / (now() - begin));
  return 0;
}
