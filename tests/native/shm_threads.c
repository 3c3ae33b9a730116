/* The C core under ThreadSanitizer: ranks are threads of one process, each with a group of its own over the same
   memory. Every rank checks what it gets, so this also finds what is wrong without being a race.
   `shm_threads RANKS ROUNDS` ends with 0, or says what differed. */
#define PACELINE_WITHOUT_PYTHON
#include "../../src/paceline/comm/shm/_core.c"

#include <pthread.h>
#include <stdio.h>

#define CHUNK 4096
#define MOST 5000
#define STRIDE (MOST * sizeof(float))

static Line *lines;
static char *memory, *region;
static int ranks, rounds, failures;

static unsigned next(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static void expect(int right, int rank, int round, const char *what) {
    if (right) return;
    fprintf(stderr, "rank %d, round %d: %s is wrong\n", rank, round, what);
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

static void reduces(Group *g, unsigned *seed, int round) {
    static __thread float own[MOST];
    size_t n = next(seed) % 3 ? next(seed) % 200 : next(seed) % MOST;
    float *data = next(seed) % 2 ? own : (float *)(region + (size_t)g->rank * STRIDE);
    for (size_t i = 0; i < n; i++) data[i] = (float)(g->rank + (int)i % 7);
    expect(all_reduce(g, (char *)data, n, F32, SUM) == FINE, g->rank, round, "the state of a sum");
    for (size_t i = 0; i < n; i++)
        expect(data[i] == (float)(ranks * (ranks - 1) / 2 + ranks * ((int)i % 7)), g->rank, round, "a sum");
}

static void moves(Group *g, unsigned *seed, int round) {
    static __thread int32_t own[MOST], rows[MOST * 8];
    size_t n = next(seed) % MOST;
    int root = (int)(next(seed) % (unsigned)ranks);
    for (size_t i = 0; i < n; i++) own[i] = g->rank * 10000 + (int)i;
    all_gather(g, (char *)own, (char *)rows, n * 4, n, I32);
    for (size_t i = 0; i < n * (size_t)ranks; i++)
        expect(rows[i] == (int)(i / n) * 10000 + (int)(i % n), g->rank, round, "a gathered row");
    size_t first = part(n, ranks, g->rank), last = part(n, ranks, g->rank + 1);
    reduce_scatter(g, (char *)own, (char *)rows, n, I32, MAX, 0);
    for (size_t i = first; i < last; i++)
        expect(rows[i - first] == (ranks - 1) * 10000 + (int)i, g->rank, round, "a scattered maximum");
    int32_t *lent = (int32_t *)(region + (size_t)g->rank * STRIDE); /* read in place until the barrier, then changed */
    for (size_t i = 0; i < n; i++) lent[i] = g->rank + (int)i;
    reduce_scatter(g, (char *)lent, (char *)rows, n, I32, SUM, 1);
    plain_barrier(g);
    for (size_t i = 0; i < n; i++) lent[i] = -1;
    for (size_t i = first; i < last; i++)
        expect(rows[i - first] == ranks * (ranks - 1) / 2 + ranks * (int)i, g->rank, round, "a sum of what was lent");
    broadcast(g, (char *)own, n * 4, n, I32, root);
    for (size_t i = 0; i < n; i++) expect(own[i] == root * 10000 + (int)i, g->rank, round, "a broadcast");
}

static void *one_rank(void *argument) {
    int rank = (int)(intptr_t)argument, watched[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int64_t processes[8] = {0};
    Region part_of = {region, STRIDE};
    Group g = {.rank = rank, .ranks = ranks, .lines = lines, .buffers = memory, .chunk = CHUNK, .direct = 512,
               .spin_ns = 2000, .spin_now = 2000, .yield_ns = 5000, .deadline_ns = 60000000000, .watched = watched,
               .processes = processes, .regions = &part_of, .region_count = 1};
    unsigned seed = 17; /* the same on every rank: they all draw the same calls */
    for (int round = 0; round < rounds; round++) {
        reduces(&g, &seed, round);
        if (next(&seed) % 4 == 0) moves(&g, &seed, round);
        if (next(&seed) % 8 == 0) plain_barrier(&g);
        if ((next(&seed) + (unsigned)rank) % 50 == 0) usleep(200); /* somebody is late: the others go to sleep */
    }
    leave(&g);
    return NULL;
}

int main(int count, char **words) {
    ranks = count > 1 ? atoi(words[1]) : 3;
    rounds = count > 2 ? atoi(words[2]) : 1000;
    pthread_t threads[8];
    lines = aligned_alloc(64, (size_t)ranks * sizeof(Line));
    memset(lines, 0, (size_t)ranks * sizeof(Line));
    memory = calloc((size_t)ranks * 2, CHUNK);
    if (posix_memalign((void **)&region, 64, (size_t)ranks * STRIDE)) return 2;
    for (int r = 0; r < ranks; r++) pthread_create(&threads[r], NULL, one_rank, (void *)(intptr_t)r);
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
    return failures != 0;
}
