/* Collectives of the ranks of one node, in memory that all of them map.

   control   one block a rank: a counter "arrived", who waits on it, what the rank was called with (two in turns)
   buffers   two a rank, used in turns, so that one barrier a round is enough
   regions   what allocate() handed out: one part a rank, all of them mapped by everybody (no copies in or out)

   small     copy in ─ barrier ─ every rank combines all buffers in rank order
   large     round by round: copy in the others' slices ─ barrier ─ combine my slice, leave it in my buffer ─
             barrier ─ copy out the others' slices
   region    barrier ─ combine my slice of all parts, write it to all parts ─ barrier

   Why two buffers are enough: in round k a rank writes its buffer k mod 2 before it arrives at the round's barrier, and
   the others read it before they arrive at the next round's. A rank writes that buffer again in round k+2, after the
   barrier of round k+1; everybody had arrived there, so everybody had finished reading. The same holds for the calls.

   Memory order. `arrived` is stored after the data it announces and loaded before the data is read: a store with
   (at least) release and a load with acquire order. The store and the load of `waiters` behind it are sequentially
   consistent, like the addition to `waiters` and the load of `arrived` behind that on the waiting side: of the two
   sides at least one sees the other, so no wake-up is lost. The same orders are right on ARM.

   Summation is in rank order on whoever does it, 16-bit floats are summed in float32 and rounded once: every rank
   ends with the same bits. Nothing here allocates, and nothing but the waiting calls the kernel. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

/* ---------------------------------------------------------------- arithmetic */

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define FAST __attribute__((visibility("hidden"), target_clones("avx512f", "avx2", "default")))
#else
#define FAST __attribute__((visibility("hidden")))
#endif
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { F32, F64, BF16, F16, U8, I8, I16, I32, I64, BOOL, DTYPES };
enum { SUM, AVG, MIN, MAX, PRODUCT };
static const size_t SIZE[DTYPES] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1};

typedef void One(void *d, const void *a, const void *b, size_t n, double scale);
typedef void Divide(void *d, size_t n, int64_t count);

/* d = a ∘ b; d may be a or b itself. */
#define KERNEL(T, NAME, EXPRESSION)                                                                   \
    FAST void one_##NAME(void *d_, const void *a_, const void *b_, size_t n, double scale) {          \
        T *d = d_; const T *a = a_, *b = b_; const T s = (T)scale; (void)s;                           \
        INDEPENDENT for (size_t i = 0; i < n; i++) { T x = a[i], y = b[i]; d[i] = EXPRESSION; }       \
    }
#define DIVIDE(T, NAME)                                                                               \
    FAST void divide_##NAME(void *d_, size_t n, int64_t count) {                                      \
        T *d = d_; const T c = (T)count;                                                              \
        INDEPENDENT for (size_t i = 0; i < n; i++) d[i] = d[i] / c;                                   \
    }
/* A NaN on any rank is a NaN in the smallest and in the largest. */
#define FLOATS(T, NAME)                                                                               \
    KERNEL(T, NAME##_sum, (x + y) * s)                                                                \
    KERNEL(T, NAME##_min, (y < x || y != y) ? y : x)                                                  \
    KERNEL(T, NAME##_max, (y > x || y != y) ? y : x)                                                  \
    KERNEL(T, NAME##_product, x * y)                                                                  \
    DIVIDE(T, NAME)
/* Whole numbers wrap around, in the unsigned type of their width (in C the signed ones may not). */
#define WHOLE(T, U, NAME)                                                                             \
    KERNEL(T, NAME##_sum, (T)((U)x + (U)y))                                                           \
    KERNEL(T, NAME##_min, y < x ? y : x)                                                              \
    KERNEL(T, NAME##_max, y > x ? y : x)                                                              \
    KERNEL(T, NAME##_product, (T)((U)x * (U)y))                                                       \
    DIVIDE(T, NAME)
FLOATS(float, f32)
FLOATS(double, f64)
WHOLE(uint8_t, uint32_t, u8)
WHOLE(int8_t, uint32_t, i8)
WHOLE(int16_t, uint32_t, i16)
WHOLE(int32_t, uint32_t, i32)
WHOLE(int64_t, uint64_t, i64)

typedef struct { One *one[5]; Divide *divide; } Kernels;
#define ROW(NAME)                                                                                     \
    {{one_##NAME##_sum, one_##NAME##_sum, one_##NAME##_min, one_##NAME##_max, one_##NAME##_product},  \
     divide_##NAME}
static const Kernels KERNELS[DTYPES] = {ROW(f32), ROW(f64), ROW(f32), ROW(f32), ROW(u8),
                                        ROW(i8), ROW(i16), ROW(i32), ROW(i64), ROW(u8)};

static inline float as_float(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline uint32_t as_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

FAST void widen_bf16(float *d, const uint16_t *a, size_t n) {
    INDEPENDENT for (size_t i = 0; i < n; i++) d[i] = as_float((uint32_t)a[i] << 16);
}
FAST void narrow_bf16(uint16_t *d, const float *a, size_t n) { /* to nearest, ties to even; NaN stays NaN */
    INDEPENDENT for (size_t i = 0; i < n; i++) {
        uint32_t x = as_bits(a[i]);
        uint32_t rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
        d[i] = (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? (x >> 16) | 0x40u : rounded);
    }
}
/* A half's exponent is 112 less than a float's: move the bits over and multiply by 2^112, which is exact and makes
   normal numbers of the subnormal ones; infinities and NaNs get the largest exponent. */
FAST void widen_f16(float *d, const uint16_t *a, size_t n) {
    INDEPENDENT for (size_t i = 0; i < n; i++) {
        uint32_t h = a[i], magnitude = (h & 0x7fffu) << 13;
        uint32_t finite = as_bits(as_float(magnitude) * 0x1p112f);
        uint32_t value = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
        d[i] = as_float(value | (h & 0x8000u) << 16);
    }
}
/* Below 2^-14 a half has steps of 2^-24, the steps of a float between a half and one: adding one half rounds. */
FAST void narrow_f16(uint16_t *d, const float *a, size_t n) {
    INDEPENDENT for (size_t i = 0; i < n; i++) {
        uint32_t bits = as_bits(a[i]), x = bits & 0x7fffffffu;
        uint32_t normal = (x + 0xfffu + ((x >> 13) & 1u) - 0x38000000u) >> 13;
        uint32_t small = as_bits(as_float(x) + 0.5f) - 0x3f000000u;
        uint32_t half = x < 0x38800000u ? small : normal;
        half = x >= 0x477ff000u ? 0x7c00u : half;
        half = x > 0x7f800000u ? 0x7e00u : half;
        d[i] = (uint16_t)(half | (bits >> 16 & 0x8000u));
    }
}

#define MOST_RANKS 1024
#define BLOCK 8192 /* bytes: the partial sums of a block stay in the first cache beside its sources */
#define PASS 65536 /* bytes: what is combined in place is still in the second cache when it is copied */

/* The n elements of all sources, combined in their order, into `mine` and into what others read (each may be a
   source; a place in `others` that is `mine` is passed over). The others' lines are written by memcpy, a block at a
   time: their cores still hold those lines, and the string instructions that memcpy uses take them over without
   reading them first (400 kB, two ranks: 12 us; stored element by element 42, past the caches 25 to 35). */
static void combine(char *mine, char *const *others, int many, const char *const *sources, int p, size_t n, int dtype,
                    int operation) {
    const Kernels *k = &KERNELS[dtype];
    int half = dtype == BF16 || dtype == F16;
    int average = operation == AVG;
    size_t size = SIZE[dtype];
    int power = (p & (p - 1)) == 0;
    double scale = average && power ? 1.0 / p : 1.0;
    int simple = p == 2 && !half && (!average || dtype == F32 || dtype == F64);
    _Alignas(64) char total[BLOCK];
    _Alignas(64) char wide[BLOCK];
    _Alignas(64) char narrow[BLOCK / 2];
    size_t step = simple ? PASS / size : BLOCK / (half ? 4 : size);
    for (size_t at = 0; at < n; at += step) {
        size_t m = n - at < step ? n - at : step, offset = at * size;
        const char *result = total;
        if (simple) {
            k->one[operation](mine + offset, sources[0] + offset, sources[1] + offset, m, scale);
            result = mine + offset;
        } else if (half) {
            void (*widen)(float *, const uint16_t *, size_t) = dtype == BF16 ? widen_bf16 : widen_f16;
            widen((float *)total, (const uint16_t *)(sources[0] + offset), m);
            for (int r = 1; r < p; r++) {
                widen((float *)wide, (const uint16_t *)(sources[r] + offset), m);
                k->one[operation](total, total, wide, m, 1.0);
            }
        } else if (p == 1) {
            memcpy(total, sources[0] + offset, m * size);
        } else {
            k->one[operation](total, sources[0] + offset, sources[1] + offset, m, 1.0);
            for (int r = 2; r < p; r++) k->one[operation](total, total, sources[r] + offset, m, 1.0);
        }
        if (average && p > 1 && !simple) k->divide(total, m, p);
        if (half) {
            (dtype == BF16 ? narrow_bf16 : narrow_f16)((uint16_t *)narrow, (const float *)total, m);
            result = narrow;
        }
        if (!simple) memcpy(mine + offset, result, m * size);
        for (int d = 0; d < many; d++)
            if (others[d] != mine) memcpy(others[d] + offset, result, m * size);
    }
}

/* ---------------------------------------------------------------- waiting */

enum { FINE, DISAGREE, DEAD, LEFT, SILENT, INTERRUPTED };
enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER };
enum { NUMBER, KIND, ELEMENTS, DTYPE, OPERATION, ROOT, REGION, OFFSET, FIELDS };

typedef struct {                     /* one rank's block of the control memory; 256 bytes */
    uint32_t arrived;                /* counts the barriers this rank has come to */
    uint32_t waiters;                /* ranks asleep until it counts on */
    uint32_t left;                   /* it has closed the group */
    uint32_t verdict;                /* why it gave up: state | culprit << 8 */
    uint32_t unused[12];
    int64_t call[2][FIELDS];         /* what it was called with, in this round and in the one before */
    int64_t process, started;        /* written and read from Python, while the group is made */
    int64_t spare[6];
} Line;

typedef struct { char *base; size_t stride; } Region;

typedef struct {
    int rank, ranks, broken, culprit;
    Line *lines;
    char *buffers;
    size_t chunk;                    /* bytes of one buffer */
    size_t direct;                   /* up to so many bytes every rank combines everything */
    int64_t spin_ns, spin_now, yield_ns, deadline_ns;
    int wary;                        /* waits for which the core is not offered */
    uint32_t arrived, round;
    int64_t number;
    int *watched;                    /* a pidfd a rank, -1 where there is none */
    int64_t *processes;
    Region *regions;
    int region_count;
    int (*interrupted)(void *);      /* lets signal handlers run; true: stop waiting */
    void *context;
} Group;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void pause_a_little(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory"); /* `yield` does nothing on most cores */
#endif
}

static void sleep_until_changed(uint32_t *word, uint32_t seen, int64_t ns) {
#ifdef __linux__
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
#else
    (void)word; (void)seen;
    struct timespec t = {0, ns < 200000 ? ns : 200000};
    nanosleep(&t, NULL);
#endif
}

static void wake_all(uint32_t *word) {
#ifdef __linux__
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

static inline int reached(const Line *line, uint32_t target) {
    return (int32_t)(__atomic_load_n(&line->arrived, __ATOMIC_ACQUIRE) - target) >= 0;
}

static void arrive(Group *g) {
    Line *mine = &g->lines[g->rank];
    __atomic_store_n(&mine->arrived, ++g->arrived, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&mine->waiters, __ATOMIC_SEQ_CST)) wake_all(&mine->arrived);
}

static int is_dead(const Group *g, int rank) {
    if (g->watched[rank] >= 0) {
        struct pollfd p = {g->watched[rank], POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }
    return g->processes[rank] > 0 && kill((pid_t)g->processes[rank], 0) < 0 && errno == ESRCH;
}

/* Has a rank that is still missing given up, died or left? What another has found out goes first: whoever gives up
   because of a dead rank ends soon too, and must not be taken for the cause. */
static int missing(Group *g, uint32_t target) {
    for (int r = 0; r < g->ranks; r++) {
        uint32_t verdict = __atomic_load_n(&g->lines[r].verdict, __ATOMIC_ACQUIRE);
        if (r == g->rank || !verdict || reached(&g->lines[r], target)) continue;
        g->culprit = (int)(verdict >> 8);
        return (int)(verdict & 255);
    }
    for (int r = 0; r < g->ranks; r++) {
        Line *line = &g->lines[r];
        if (r == g->rank || reached(line, target)) continue;
        int gone = is_dead(g, r) ? DEAD : __atomic_load_n(&line->left, __ATOMIC_ACQUIRE) ? LEFT : FINE;
        if (gone && !reached(line, target)) {
            g->culprit = r;
            return gone;
        }
    }
    return FINE;
}

#define SHORTEST_SPIN 1000   /* ns */
#define STRANGER 2000000     /* ns that ranks of one group do not keep a core while others offer theirs */
#define WARY 64              /* so many waits go to sleep without offering the core first */
#define LOOK_EVERY 100000000 /* ns: how long a sleep lasts before the dead are looked for */

/* Asleep until `line` has reached the target; the kernel is asked to wake us, never later than LOOK_EVERY. */
static int sleep_for(Group *g, int rank, uint32_t target, int64_t end) {
    Line *line = &g->lines[rank];
    int state = FINE;
    __atomic_add_fetch(&line->waiters, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint32_t seen = __atomic_load_n(&line->arrived, __ATOMIC_SEQ_CST);
        if ((int32_t)(seen - target) >= 0) break;
        int64_t left = end - now_ns();
        state = missing(g, target);
        if (state) break;
        if (left <= 0) { g->culprit = rank; state = SILENT; break; }
        if (g->interrupted && g->interrupted(g->context)) { g->culprit = g->rank; state = INTERRUPTED; break; }
        sleep_until_changed(&line->arrived, seen, left < LOOK_EVERY ? left : LOOK_EVERY);
    }
    __atomic_sub_fetch(&line->waiters, 1, __ATOMIC_SEQ_CST);
    return state;
}

/* Spin while every rank has a core of its own, offer the core to others for a while, then sleep.
   How long it pays to spin is learnt: when two ranks were put on one core by whatever else is running, every
   nanosecond of it keeps the other one waiting (measured: 430 us instead of 14 us for 400 kB). A core that does not
   come back soon went to another program: a sleeper is woken at once, who only offered waits for a whole time slice. */
static int wait_for(Group *g, int rank, uint32_t target) {
    const Line *line = &g->lines[rank];
    if (reached(line, target)) return FINE;
    int64_t start = now_ns(), now = start;
    while (now - start < g->spin_now) {
        for (int i = 0; i < 16; i++) {
            pause_a_little();
            if (reached(line, target)) {
                if (g->spin_now < g->spin_ns) g->spin_now *= 2;
                return FINE;
            }
        }
        now = now_ns();
    }
    if (g->spin_now > SHORTEST_SPIN) g->spin_now /= 2;
    if (g->wary) g->wary--;
    else
        while (now - start < g->yield_ns) {
            int64_t offered = now;
            for (int i = 0; i < 4; i++) {
                sched_yield();
                if (reached(line, target)) return FINE;
            }
            now = now_ns();
            if (now - offered > STRANGER) g->wary = WARY;
        }
    return sleep_for(g, rank, target, start + g->deadline_ns);
}

static int give_up(Group *g, int state) {
    Line *mine = &g->lines[g->rank];
    __atomic_store_n(&mine->verdict, (uint32_t)state | (uint32_t)g->culprit << 8, __ATOMIC_RELEASE);
    wake_all(&mine->arrived);
    return g->broken = state;
}

static int wait_all(Group *g, uint32_t target) {
    for (int r = 0; r < g->ranks; r++) {
        int state = r == g->rank ? FINE : wait_for(g, r, target);
        if (state) return give_up(g, state);
    }
    return FINE;
}

static int barrier(Group *g) {
    arrive(g);
    return wait_all(g, g->arrived);
}

/* ---------------------------------------------------------------- collectives */

static inline char *buffer(const Group *g, int rank) { return g->buffers + ((size_t)rank * 2 + (g->round & 1)) * g->chunk; }
/* The number of an operation holds its caller's label above the operation itself: compared, but not computed with. */
static inline int plain(int64_t operation) { return (int)(operation & 7); }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Rank's part of n elements: torch.tensor_split's, whose parts differ by one element at most. */
static size_t part(size_t n, int p, int rank) {
    return (size_t)rank * (n / (size_t)p) + smaller((size_t)rank, n % (size_t)p);
}
/* The same on borders of cache lines, so that no two ranks write one line. */
static size_t slice(size_t n, int p, int rank, size_t size) {
    size_t line = 64 / size;
    return rank == p ? n : smaller(n, (part(n, p, rank) + line - 1) / line * line);
}

static void announce(Group *g, int kind, size_t n, int dtype, int64_t operation, int root, int region, size_t offset) {
    int64_t *call = g->lines[g->rank].call[g->round & 1];
    int64_t is[FIELDS] = {g->number, kind, (int64_t)n, dtype, operation, root, region, (int64_t)offset};
    memcpy(call, is, sizeof is);
}

/* The barrier at which the ranks' calls meet. */
static int meet(Group *g) {
    if (barrier(g)) return g->broken;
    const int64_t *mine = g->lines[g->rank].call[g->round & 1];
    for (int r = 0; r < g->ranks; r++)
        if (memcmp(g->lines[r].call[g->round & 1], mine, sizeof(int64_t) * FIELDS)) {
            g->culprit = r;
            return g->broken = DISAGREE;
        }
    return FINE;
}

/* In which region, and where in this rank's part of it, does the data lie? */
static int find_region(const Group *g, const char *data, size_t bytes, size_t *offset) {
    for (int i = g->region_count - 1; i >= 0; i--) {
        const char *mine = g->regions[i].base + (size_t)g->rank * g->regions[i].stride;
        if (data >= mine && data + bytes <= mine + g->regions[i].stride) {
            *offset = (size_t)(data - mine);
            return i;
        }
    }
    *offset = 0;
    return -1;
}
static inline char *in_region(const Group *g, int region, int rank, size_t offset) {
    return g->regions[region].base + (size_t)rank * g->regions[region].stride + offset;
}

static int reduce_direct(Group *g, char *data, size_t n, int dtype, int operation) {
    memcpy(buffer(g, g->rank), data, n * SIZE[dtype]);
    if (meet(g)) return g->broken;
    const char *sources[MOST_RANKS];
    for (int r = 0; r < g->ranks; r++) sources[r] = buffer(g, r);
    sources[g->rank] = data;
    combine(data, NULL, 0, sources, g->ranks, n, dtype, operation);
    g->round++;
    return FINE;
}

static int reduce_region(Group *g, int region, size_t offset, size_t n, int dtype, int operation) {
    char *parts[MOST_RANKS];
    size_t size = SIZE[dtype], from = slice(n, g->ranks, g->rank, size), to = slice(n, g->ranks, g->rank + 1, size);
    if (meet(g)) return g->broken;
    for (int r = 0; r < g->ranks; r++) parts[r] = in_region(g, region, r, offset) + from * size;
    combine(parts[g->rank], parts, g->ranks, (const char *const *)parts, g->ranks, to - from, dtype, operation);
    g->round++;
    return barrier(g);
}

static int reduce_in_rounds(Group *g, char *data, size_t n, int dtype, int operation) {
    size_t size = SIZE[dtype], most = g->chunk / size;
    for (size_t at = 0; at < n; at += most) {
        size_t m = smaller(most, n - at), from = slice(m, g->ranks, g->rank, size);
        size_t to = slice(m, g->ranks, g->rank + 1, size);
        char *here = data + at * size, *mine = buffer(g, g->rank);
        memcpy(mine, here, from * size);
        memcpy(mine + to * size, here + to * size, (m - to) * size);
        if (at ? barrier(g) : meet(g)) return g->broken;
        const char *sources[MOST_RANKS];
        for (int r = 0; r < g->ranks; r++) sources[r] = buffer(g, r) + from * size;
        sources[g->rank] = here + from * size;
        char *left = mine + from * size; /* for the others to fetch */
        combine(here + from * size, &left, 1, sources, g->ranks, to - from, dtype, operation);
        if (barrier(g)) return g->broken;
        for (int r = 0; r < g->ranks; r++) {
            size_t first = slice(m, g->ranks, r, size), last = slice(m, g->ranks, r + 1, size);
            if (r != g->rank) memcpy(here + first * size, buffer(g, r) + first * size, (last - first) * size);
        }
        g->round++;
    }
    return FINE;
}

static int begin(Group *g) { g->number++; return g->broken; }

static int all_reduce(Group *g, char *data, size_t n, int dtype, int64_t operation) {
    if (begin(g) || g->ranks == 1) return g->broken;
    size_t bytes = n * SIZE[dtype], offset = 0;
    int region = bytes > g->direct && g->region_count ? find_region(g, data, bytes, &offset) : -1;
    announce(g, ALL_REDUCE, n, dtype, operation, 0, region, offset);
    if (bytes <= g->direct) return reduce_direct(g, data, n, dtype, plain(operation));
    if (region >= 0) return reduce_region(g, region, offset, n, dtype, plain(operation));
    return reduce_in_rounds(g, data, n, dtype, plain(operation));
}

static int broadcast(Group *g, char *data, size_t bytes, size_t n, int dtype, int root) {
    if (begin(g)) return g->broken;
    size_t offset = 0, done = 0;
    int region = bytes > g->direct && g->region_count ? find_region(g, data, bytes, &offset) : -1;
    announce(g, BROADCAST, n, dtype, SUM, root, region, offset);
    if (region >= 0) {
        if (meet(g)) return g->broken;
        if (g->rank != root) memcpy(data, in_region(g, region, root, offset), bytes);
        g->round++;
        return barrier(g);
    }
    do {
        size_t m = smaller(g->chunk, bytes - done);
        if (g->rank == root) memcpy(buffer(g, root), data + done, m);
        if (done ? barrier(g) : meet(g)) return g->broken;
        if (g->rank != root) memcpy(data + done, buffer(g, root), m);
        g->round++;
        done += m;
    } while (done < bytes);
    return FINE;
}

static int all_gather(Group *g, const char *data, char *rows, size_t bytes, size_t n, int dtype) {
    if (begin(g)) return g->broken;
    size_t offset = 0, done = 0;
    int region = bytes > g->direct && g->region_count ? find_region(g, data, bytes, &offset) : -1;
    announce(g, ALL_GATHER, n, dtype, SUM, 0, region, offset);
    if (rows + (size_t)g->rank * bytes != data) memcpy(rows + (size_t)g->rank * bytes, data, bytes);
    if (region >= 0) {
        if (meet(g)) return g->broken;
        for (int r = 0; r < g->ranks; r++)
            if (r != g->rank) memcpy(rows + (size_t)r * bytes, in_region(g, region, r, offset), bytes);
        g->round++;
        return barrier(g);
    }
    do {
        size_t m = smaller(g->chunk, bytes - done);
        memcpy(buffer(g, g->rank), data + done, m);
        if (done ? barrier(g) : meet(g)) return g->broken;
        for (int r = 0; r < g->ranks; r++)
            if (r != g->rank) memcpy(rows + (size_t)r * bytes + done, buffer(g, r), m);
        g->round++;
        done += m;
    } while (done < bytes);
    return FINE;
}

/* `lent`: nobody changes the data before the next barrier, so nobody has to be waited for here. */
static int reduce_scatter(Group *g, const char *data, char *out, size_t n, int dtype, int64_t operation, int lent) {
    if (begin(g)) return g->broken;
    size_t size = SIZE[dtype], offset = 0, mine = part(n, g->ranks, g->rank);
    size_t length = part(n, g->ranks, g->rank + 1) - mine, longest = part(n, g->ranks, 1);
    int region = n * size > g->direct && g->region_count ? find_region(g, data, n * size, &offset) : -1;
    const char *sources[MOST_RANKS];
    announce(g, REDUCE_SCATTER, n, dtype, operation, 0, region, offset);
    if (region >= 0) {
        if (meet(g)) return g->broken;
        for (int r = 0; r < g->ranks; r++) sources[r] = in_region(g, region, r, offset) + mine * size;
        combine(out, NULL, 0, sources, g->ranks, length, dtype, plain(operation));
        g->round++;
        return lent ? FINE : barrier(g);
    }
    size_t piece = g->chunk / size / (size_t)g->ranks, done = 0; /* each buffer holds a piece for every rank */
    do {
        for (int r = 0; r < g->ranks; r++) {
            size_t from = part(n, g->ranks, r) + done, end = part(n, g->ranks, r + 1);
            if (r != g->rank && from < end)
                memcpy(buffer(g, g->rank) + (size_t)r * piece * size, data + from * size, smaller(piece, end - from) * size);
        }
        if (done ? barrier(g) : meet(g)) return g->broken;
        if (done < length) {
            for (int r = 0; r < g->ranks; r++) sources[r] = buffer(g, r) + (size_t)g->rank * piece * size;
            sources[g->rank] = data + (mine + done) * size;
            combine(out + done * size, NULL, 0, sources, g->ranks, smaller(piece, length - done), dtype, plain(operation));
        }
        g->round++;
        done += piece;
    } while (done < longest);
    return FINE;
}

static int plain_barrier(Group *g) {
    if (begin(g)) return g->broken;
    announce(g, BARRIER, 0, -1, SUM, 0, -1, 0);
    if (meet(g)) return g->broken;
    g->round++;
    return FINE;
}

static void leave(Group *g) {
    Line *mine = &g->lines[g->rank];
    __atomic_store_n(&mine->left, 1, __ATOMIC_SEQ_CST);
    wake_all(&mine->arrived);
}

/* ---------------------------------------------------------------- the face to Python */
#ifndef PACELINE_WITHOUT_PYTHON /* a test compiles the above alone, under ThreadSanitizer */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject_HEAD
    Group g;
    Py_buffer memory;
    Py_buffer *parts;
    int busy;
} Shared;

static int let_handlers_run(void *context) {
    PyThreadState **state = context;
    PyEval_RestoreThread(*state);
    int stop = PyErr_CheckSignals() < 0;
    *state = PyEval_SaveThread();
    return stop;
}

static int numbers_of(PyObject *sequence, int ranks, int64_t **out) {
    *out = calloc((size_t)ranks, sizeof(int64_t));
    if (!*out) { PyErr_NoMemory(); return -1; }
    for (int r = 0; r < ranks; r++) {
        PyObject *item = PySequence_GetItem(sequence, r);
        if (!item) return -1;
        (*out)[r] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* Group(memory, rank, ranks, processes, pidfds, chunk, direct, spin_ns, yield_ns, deadline_ns) */
static PyObject *shared_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *memory, *processes, *watched;
    int rank, ranks;
    long long chunk, direct, spin, yields, deadline;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "OiiOOLLLLL", &memory, &rank, &ranks, &processes, &watched, &chunk, &direct, &spin,
                          &yields, &deadline))
        return NULL;
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || direct > chunk || chunk < 64 * ranks) {
        PyErr_SetString(PyExc_ValueError, "ranks, chunk and direct do not fit together");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Shared *self = (Shared *)allocate(type, 0);
    if (!self) return NULL;
    Group *g = &self->g;
    g->ranks = ranks; /* dealloc relies on it */
    int64_t *fds = NULL;
    int bad = PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE) < 0;
    bad = bad || numbers_of(processes, ranks, &g->processes) < 0 || numbers_of(watched, ranks, &fds) < 0;
    if (!bad && (size_t)self->memory.len < (size_t)ranks * (sizeof(Line) + 2 * (size_t)chunk)) {
        PyErr_SetString(PyExc_ValueError, "the memory is too small");
        bad = 1;
    }
    if (!bad && !(g->watched = malloc(sizeof(int) * (size_t)ranks))) { PyErr_NoMemory(); bad = 1; }
    if (bad) { free(fds); Py_DECREF(self); return NULL; }
    for (int r = 0; r < ranks; r++) g->watched[r] = (int)fds[r];
    free(fds);
    g->rank = rank;
    g->lines = self->memory.buf;
    g->buffers = (char *)self->memory.buf + (size_t)ranks * sizeof(Line);
    g->chunk = (size_t)chunk;
    g->direct = (size_t)direct;
    g->spin_ns = g->spin_now = spin;
    g->yield_ns = yields;
    g->deadline_ns = deadline;
    g->interrupted = let_handlers_run;
    return (PyObject *)self;
}

static void shared_dealloc(PyObject *object) {
    Shared *self = (Shared *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->g.region_count; i++) PyBuffer_Release(&self->parts[i]);
    if (self->memory.obj) PyBuffer_Release(&self->memory);
    free(self->parts);
    free(self->g.regions);
    free(self->g.watched);
    free(self->g.processes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Whole numbers from the arguments; a pointer is one of them. */
static int take(PyObject *const *args, Py_ssize_t given, int wanted, long long *out) {
    if (given != wanted) { PyErr_Format(PyExc_TypeError, "%d arguments are wanted", wanted); return -1; }
    for (int i = 0; i < wanted; i++) {
        out[i] = PyLong_AsLongLong(args[i]);
        if (out[i] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

static int checked(Shared *self, long long n, long long dtype, long long operation, long long root) {
    if (n < 0 || dtype < 0 || dtype >= DTYPES || operation < 0 || plain(operation) > PRODUCT || root < 0 ||
        root >= self->g.ranks) {
        PyErr_SetString(PyExc_ValueError, "a number is out of its range");
        return -1;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "two threads call one group at the same time; give each a group of its own");
        return -1;
    }
    return 0;
}

/* Everything below runs without the interpreter's lock; 0 is success, else `problem` tells. */
#define RUN(CALL)                                                                                     \
    self->busy = 1;                                                                                   \
    PyThreadState *state = PyEval_SaveThread();                                                       \
    self->g.context = &state;                                                                         \
    int result = CALL;                                                                                \
    PyEval_RestoreThread(state);                                                                      \
    self->busy = 0;                                                                                   \
    if (PyErr_Occurred()) return NULL;                                                                \
    return PyLong_FromLong(result);

static PyObject *shared_all_reduce(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    Shared *self = (Shared *)object;
    long long x[4]; /* data, elements, dtype, operation */
    if (take(args, given, 4, x) < 0 || checked(self, x[1], x[2], x[3], 0) < 0) return NULL;
    RUN(all_reduce(&self->g, (char *)(intptr_t)x[0], (size_t)x[1], (int)x[2], x[3]))
}

static PyObject *shared_broadcast(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    Shared *self = (Shared *)object;
    long long x[5]; /* data, bytes, elements, dtype, root */
    if (take(args, given, 5, x) < 0 || checked(self, x[2], 0, 0, x[4]) < 0) return NULL;
    RUN(broadcast(&self->g, (char *)(intptr_t)x[0], (size_t)x[1], (size_t)x[2], (int)x[3], (int)x[4]))
}

static PyObject *shared_all_gather(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    Shared *self = (Shared *)object;
    long long x[5]; /* data, rows, bytes, elements, dtype */
    if (take(args, given, 5, x) < 0 || checked(self, x[3], 0, 0, 0) < 0) return NULL;
    RUN(all_gather(&self->g, (const char *)(intptr_t)x[0], (char *)(intptr_t)x[1], (size_t)x[2], (size_t)x[3], (int)x[4]))
}

static PyObject *shared_reduce_scatter(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    Shared *self = (Shared *)object;
    long long x[6]; /* data, out, elements, dtype, operation, lent */
    if (take(args, given, 6, x) < 0 || checked(self, x[2], x[3], x[4], 0) < 0) return NULL;
    RUN(reduce_scatter(&self->g, (const char *)(intptr_t)x[0], (char *)(intptr_t)x[1], (size_t)x[2], (int)x[3], x[4],
                       (int)x[5]))
}

static PyObject *shared_barrier(PyObject *object, PyObject *none) {
    Shared *self = (Shared *)object;
    (void)none;
    if (checked(self, 0, 0, 0, 0) < 0) return NULL;
    RUN(plain_barrier(&self->g))
}

/* add(memory, stride): a region with one part of `stride` bytes a rank */
static PyObject *shared_add(PyObject *object, PyObject *args) {
    Shared *self = (Shared *)object;
    PyObject *memory;
    long long stride;
    if (!PyArg_ParseTuple(args, "OL", &memory, &stride)) return NULL;
    size_t count = (size_t)self->g.region_count + 1;
    Region *regions = realloc(self->g.regions, count * sizeof *regions);
    if (regions) self->g.regions = regions;
    Py_buffer *parts = realloc(self->parts, count * sizeof *parts);
    if (parts) self->parts = parts;
    if (!regions || !parts) return PyErr_NoMemory();
    Py_buffer *part_ = &self->parts[count - 1];
    if (PyObject_GetBuffer(memory, part_, PyBUF_WRITABLE) < 0) return NULL;
    if (stride < 0 || (size_t)part_->len < (size_t)stride * (size_t)self->g.ranks) {
        PyBuffer_Release(part_);
        PyErr_SetString(PyExc_ValueError, "the memory is too small");
        return NULL;
    }
    self->g.regions[count - 1] = (Region){part_->buf, (size_t)stride};
    self->g.region_count++;
    Py_RETURN_NONE;
}

static PyObject *shared_leave(PyObject *object, PyObject *none) {
    (void)none;
    leave(&((Shared *)object)->g);
    Py_RETURN_NONE;
}

/* problem() -> (state, culprit, number, [the eight fields of each rank's last call]) */
static PyObject *shared_problem(PyObject *object, PyObject *none) {
    Group *g = &((Shared *)object)->g;
    (void)none;
    PyObject *calls = PyList_New(0);
    if (!calls) return NULL;
    for (int r = 0; r < g->ranks; r++) {
        const int64_t *newer = g->lines[r].call[g->round & 1], *older = g->lines[r].call[1 - (g->round & 1)];
        const int64_t *c = newer[NUMBER] >= older[NUMBER] ? newer : older;
        PyObject *row = Py_BuildValue("(LLLLLLLL)", (long long)c[0], (long long)c[1], (long long)c[2], (long long)c[3],
                                      (long long)c[4], (long long)c[5], (long long)c[6], (long long)c[7]);
        if (!row || PyList_Append(calls, row) < 0) { Py_XDECREF(row); Py_DECREF(calls); return NULL; }
        Py_DECREF(row);
    }
    return Py_BuildValue("(iiLN)", g->broken, g->culprit, (long long)g->number, calls);
}

#define FASTCALL(NAME) {#NAME, (PyCFunction)(void (*)(void))shared_##NAME, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    FASTCALL(all_reduce), FASTCALL(broadcast), FASTCALL(all_gather), FASTCALL(reduce_scatter),
    {"barrier", shared_barrier, METH_NOARGS, NULL},
    {"add", shared_add, METH_VARARGS, NULL},
    {"leave", shared_leave, METH_NOARGS, NULL},
    {"problem", shared_problem, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, shared_new}, {Py_tp_dealloc, shared_dealloc}, {Py_tp_methods, methods}, {0, NULL},
};
static PyType_Spec specification = {"paceline.comm.shm._core.Group", sizeof(Shared), 0, Py_TPFLAGS_DEFAULT, slots};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_core", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *self = PyModule_Create(&module), *type = PyType_FromSpec(&specification);
    if (!self || !type || PyModule_AddObjectRef(self, "Group", type) < 0 ||
        PyModule_AddIntConstant(self, "LINE_BYTES", (long)sizeof(Line)) < 0) {
        Py_XDECREF(self);
        Py_XDECREF(type);
        return NULL;
    }
    Py_DECREF(type);
    return self;
}
#endif
