/*
 * A load generator that knows next to no protocol: it sends ready-made frames over many connections, keeps a given number of them
 * in flight on each, and takes the time until each answer (four bytes of size, then that many bytes) is whole.
 *
 *   replay PORT FRAMES CONNECTIONS DEPTH START STEP SECONDS REQUESTS CHECK
 *
 * FRAMES is a file of frames with their sizes in front. Connection c begins with frame c * START and moves on by STEP
 * frames after each request. The four bytes after API key and version, the correlation id, are counted up from request
 * to request and must come back first in the answer: that much every protocol of this family has in common. It ends after SECONDS or REQUESTS, whichever comes first, when the answers to all that was
 * sent are in. CHECK is the position of a 16-bit error code within an answer (without its size), -1 for none.
 * It prints one line of JSON. One thread, epoll, loopback only, and an alarm in case the broker never answers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 64
#define EVENTS_MAX 256
#define SCRATCH_BYTES (1 << 20)
#define HEAD_BYTES 128 /* of an answer that are kept, for the error code */
#define SUB_BITS 7 /* 128 steps per power of two: latencies are exact to 0.8 % */
#define BUCKETS (64 << SUB_BITS)

#define ID_AT 8 /* size, API key, version */

typedef struct {
    uint8_t *at;
    size_t size;
} Frame;

typedef struct {
    int fd;
    int in_flight; /* requests that were begun and not answered */
    int oldest; /* index in sent_ns of the oldest one */
    uint64_t sent_ns[DEPTH_MAX];
    uint32_t ids[DEPTH_MAX];
    long frame; /* the next one to send */
    size_t written; /* bytes of a frame that is not out yet; 0 when none is */
    const Frame *writing;
    uint32_t id; /* of that frame */
    size_t kept; /* bytes of the answer, its size included */
    size_t size; /* of the answer and its size; 0 until known */
    uint8_t head[HEAD_BYTES];
    int wants_write;
} Connection;

static uint8_t scratch[SCRATCH_BYTES];
static uint64_t buckets[BUCKETS];
static Frame *frames;
static long frame_count;
static Connection *connections;
static int epoll_fd, depth;
static long step, check, sent, answered, failed, requests_max;
static uint64_t bytes_in, bytes_out, stop_ns, worst_ns;
static int first_error;

static void die(const char *what) {
    fprintf(stderr, "replay: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int bucket_of(uint64_t value) {
    if (value < (1u << SUB_BITS)) return (int)value;
    int shift = 63 - __builtin_clzll(value) - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + (int)((value >> shift) - (1u << SUB_BITS));
}

static double bucket_ms(int bucket) {
    if (bucket < (1 << SUB_BITS)) return bucket / 1e6;
    int shift = (bucket >> SUB_BITS) - 1;
    uint64_t low = (uint64_t)((bucket & ((1 << SUB_BITS) - 1)) + (1 << SUB_BITS)) << shift;
    return (double)(low + (1ull << shift) / 2) / 1e6;
}

static double percentile(double share) {
    uint64_t wanted = (uint64_t)(share * (double)answered), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += buckets[bucket];
        if (seen > wanted) return bucket_ms(bucket);
    }
    return (double)worst_ns / 1e6;
}

static void load_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info)) die(path);
    uint8_t *all = malloc((size_t)info.st_size);
    if (!all || fread(all, 1, (size_t)info.st_size, file) != (size_t)info.st_size) die("reading the frames");
    fclose(file);
    for (size_t at = 0; at < (size_t)info.st_size;) {
        uint32_t size;
        memcpy(&size, all + at, 4);
        frames = realloc(frames, sizeof(Frame) * (size_t)(frame_count + 1));
        if (ntohl(size) < 8) die("a frame without a header");
        frames[frame_count++] = (Frame){all + at, ntohl(size) + 4u};
        at += ntohl(size) + 4u;
    }
    if (frame_count == 0) die("no frames");
}

static void watch(Connection *c, int write_too) {
    struct epoll_event event = {.events = EPOLLIN | (write_too ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event)) die("epoll_ctl");
    c->wants_write = write_too;
}

static void write_some(Connection *c) {
    for (;;) {
        if (!c->writing) {
            if (c->in_flight >= depth || sent >= requests_max || now_ns() >= stop_ns) break;
            c->writing = &frames[c->frame];
            c->frame = (c->frame + step) % frame_count;
            int place = (c->oldest + c->in_flight) % DEPTH_MAX;
            c->id = c->ids[place] = htonl((uint32_t)sent & 0x7fffffff);
            c->sent_ns[place] = now_ns();
            c->in_flight++;
            sent++;
        }
        /* Connections share the frames: another one may have left its id there. */
        if (c->written < ID_AT + 4) memcpy(c->writing->at + ID_AT, &c->id, 4);
        ssize_t done = write(c->fd, c->writing->at + c->written, c->writing->size - c->written);
        if (done < 0) {
            if (errno != EAGAIN) die("write");
            if (!c->wants_write) watch(c, 1);
            return;
        }
        bytes_out += (uint64_t)done;
        c->written += (size_t)done;
        if (c->written == c->writing->size) {
            c->writing = NULL;
            c->written = 0;
        }
    }
    if (c->wants_write) watch(c, 0);
}

static void finish(Connection *c, uint64_t now) {
    uint64_t took = now - c->sent_ns[c->oldest];
    if (c->in_flight == 0) die("an answer to nothing");
    if (c->size < 8 || memcmp(c->head + 4, &c->ids[c->oldest], 4)) die("the answer to another request");
    c->oldest = (c->oldest + 1) % DEPTH_MAX;
    c->in_flight--;
    answered++;
    buckets[bucket_of(took)]++;
    if (took > worst_ns) worst_ns = took;
    if (check >= 0 && (size_t)check + 6 <= c->size && check + 6 <= HEAD_BYTES) {
        int error = (int16_t)(c->head[4 + check] << 8 | c->head[5 + check]);
        if (error) {
            failed++;
            if (!first_error) first_error = error;
        }
    }
    c->kept = c->size = 0;
}

static void take(Connection *c, const uint8_t *from, size_t count, uint64_t now) {
    while (count > 0) {
        size_t wanted = (c->size ? c->size : 4) - c->kept;
        size_t part = count < wanted ? count : wanted;
        if (c->kept < HEAD_BYTES) {
            size_t room = HEAD_BYTES - c->kept;
            memcpy(c->head + c->kept, from, part < room ? part : room);
        }
        c->kept += part;
        from += part;
        count -= part;
        if (!c->size && c->kept == 4) {
            uint32_t size;
            memcpy(&size, c->head, 4);
            c->size = ntohl(size) + 4u;
        }
        if (c->size && c->kept == c->size) finish(c, now);
    }
}

static void read_some(Connection *c) {
    ssize_t got = read(c->fd, scratch, SCRATCH_BYTES);
    if (got == 0) die("the broker closed a connection");
    if (got < 0) {
        if (errno == EAGAIN) return;
        die("read");
    }
    bytes_in += (uint64_t)got;
    take(c, scratch, (size_t)got, now_ns());
}

static void connect_all(int port, int count, long start) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connections = calloc((size_t)count, sizeof(Connection));
    for (int i = 0; i < count; i++) {
        Connection *c = &connections[i];
        int yes = 1;
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->frame = (i * start) % frame_count;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
    }
}

static void run(void) {
    struct epoll_event events[EVENTS_MAX];
    while (answered < sent) {
        int ready = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        if (ready < 0) die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_some(c);
            write_some(c);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 10) {
        fprintf(stderr, "replay PORT FRAMES CONNECTIONS DEPTH START STEP SECONDS REQUESTS CHECK\n");
        return 2;
    }
    int connection_count = atoi(arguments[3]);
    double seconds = atof(arguments[7]);
    depth = atoi(arguments[4]);
    if (depth < 1 || depth > DEPTH_MAX) die("the depth");
    step = atol(arguments[6]);
    requests_max = atol(arguments[8]);
    check = atol(arguments[9]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    load_frames(arguments[2]);
    epoll_fd = epoll_create1(0);
    alarm((unsigned)seconds + 60);
    connect_all(atoi(arguments[1]), connection_count, atol(arguments[5]));
    uint64_t started_ns = now_ns();
    stop_ns = started_ns + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < connection_count; i++) write_some(&connections[i]);
    run();
    double took_s = (double)(now_ns() - started_ns) / 1e9;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes_in\": %llu, \"bytes_out\": %llu, \"errors\": %ld, "
           "\"first_error\": %d, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f, "
           "\"client_s\": %.3f}\n",
           answered, took_s, (unsigned long long)bytes_in, (unsigned long long)bytes_out, failed, first_error,
           percentile(0.5), percentile(0.99), percentile(0.999), (double)worst_ns / 1e6, cpu_s);
    return 0;
}
