/* The arithmetic of batch norm on either side of its two messages: float32, one pass over the tensor each.

   forward    statistics   Σx, Σx², count  ─▶ message ─▶  normalise   y = (x - mean) / std · weight + bias
   backward   sums         Σdy, Σdy·(x - mean)  ─▶ message ─▶  gradient   dx

   A tensor is n × channels × length, length 1 for vectors and for channels-last pictures: then the inner loops run
   over channels, else over the length. Sums are kept in float64, which is what makes Σx² - (Σx)²/count harmless: with
   mean = 10⁴ std the variance has 8 exact digits. The mean is not a float32: it is split into its float32 `about` and
   the small `rest`, so that x - about is exact where x is near it.

   The same formulas in torch's operations are in _arithmetic.py, for every other type and device. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define FAST __attribute__((visibility("hidden"), target_clones("avx512f", "avx2", "default")))
#else
#define FAST __attribute__((visibility("hidden")))
#endif

#define BLOCK 64 /* channels whose sums stay in the first cache */
#define LANES 32 /* independent sums along the length */

typedef struct { size_t n, channels, length; } Shape;

/* Σa and Σa·b over channels from..from+m, rows far apart; b is x - about, or (about absent) a itself. */
FAST void sums_of_rows(const float *restrict a, const float *restrict x, const float *restrict about, size_t n, size_t stride,
                       size_t m, double *restrict first, double *restrict second) {
    double s[BLOCK] = {0}, q[BLOCK] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *r = a + i * stride, *z = x + i * stride;
        for (size_t k = 0; k < m; k++) {
            double a0 = r[k], a1 = r[k + stride], a2 = r[k + 2 * stride], a3 = r[k + 3 * stride];
            double b0 = z[k] - about[k], b1 = z[k + stride] - about[k];
            double b2 = z[k + 2 * stride] - about[k], b3 = z[k + 3 * stride] - about[k];
            s[k] += (a0 + a1) + (a2 + a3);
            q[k] += (a0 * b0 + a1 * b1) + (a2 * b2 + a3 * b3);
        }
    }
    for (; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            double a0 = a[i * stride + k], b0 = x[i * stride + k] - about[k];
            s[k] += a0;
            q[k] += a0 * b0;
        }
    memcpy(first, s, m * sizeof(double));
    memcpy(second, q, m * sizeof(double));
}

/* The same of one channel of one sample, along its length; added to what is there. */
FAST void sums_along(const float *restrict a, const float *restrict x, float about, size_t length, double *first, double *second) {
    double s[LANES] = {0}, q[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= length; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            double u = a[i + k], v = x[i + k] - about;
            s[k] += u;
            q[k] += u * v;
        }
    for (; i < length; i++) {
        double u = a[i], v = x[i] - about;
        s[0] += u;
        q[0] += u * v;
    }
    for (size_t k = 0; k < LANES; k++) {
        *first += s[k];
        *second += q[k];
    }
}

static const float ZEROS[BLOCK];

static void both_sums(const float *a, const float *x, const float *about, Shape t, double *first, double *second) {
    if (t.length == 1) {
        for (size_t c = 0; c < t.channels; c += BLOCK) {
            size_t m = t.channels - c < BLOCK ? t.channels - c : BLOCK;
            sums_of_rows(a + c, x + c, about ? about + c : ZEROS, t.n, t.channels, m, first + c, second + c);
        }
        return;
    }
    memset(first, 0, t.channels * sizeof(double));
    memset(second, 0, t.channels * sizeof(double));
    for (size_t i = 0; i < t.n; i++)
        for (size_t c = 0; c < t.channels; c++) {
            size_t at = (i * t.channels + c) * t.length;
            sums_along(a + at, x + at, about ? about[c] : 0.0f, t.length, first + c, second + c);
        }
}

/* kept: about, rest, 1/std; a channel's scale and shift are written for the caller's loop. */
FAST void from_message(const double *restrict message, size_t channels, double eps, float *restrict kept,
                       const float *restrict weight, const float *restrict bias, float *restrict scale, float *restrict shift) {
    double count = message[2 * channels];
    for (size_t c = 0; c < channels; c++) {
        double mean = message[c] / count, variance = message[channels + c] / count - mean * mean;
        variance = variance > 0 || variance != variance ? variance : 0;
        double inverse = 1 / sqrt(variance + eps);
        float about = (float)mean, rest = (float)(mean - about);
        kept[c] = about;
        kept[channels + c] = rest;
        kept[2 * channels + c] = (float)inverse;
        scale[c] = (float)(weight ? inverse * weight[c] : inverse);
        shift[c] = (bias ? bias[c] : 0.0f) - rest * scale[c];
    }
}

FAST void track(const double *restrict message, size_t channels, double momentum, float *restrict mean, float *restrict variance) {
    double count = message[2 * channels], unbiased = count / (count - 1);
    for (size_t c = 0; c < channels; c++) {
        double m = message[c] / count, v = message[channels + c] / count - m * m;
        v = v > 0 || v != v ? v : 0;
        mean[c] = (float)((1 - momentum) * mean[c] + momentum * m);
        variance[c] = (float)((1 - momentum) * variance[c] + v * momentum * unbiased);
    }
}

FAST void normalise_all(const float *restrict x, float *restrict y, Shape t, const float *restrict about,
                        const float *restrict scale, const float *restrict shift) {
    if (t.length == 1) {
        for (size_t i = 0; i < t.n; i++, x += t.channels, y += t.channels)
            for (size_t c = 0; c < t.channels; c++) y[c] = (x[c] - about[c]) * scale[c] + shift[c];
        return;
    }
    for (size_t i = 0; i < t.n; i++)
        for (size_t c = 0; c < t.channels; c++, x += t.length, y += t.length) {
            float a = about[c], w = scale[c], b = shift[c];
            for (size_t k = 0; k < t.length; k++) y[k] = (x[k] - a) * w + b;
        }
}

/* dx = scale · ((dy - slope · (x - about)) + shift) */
FAST void gradient_all(const float *restrict dy, const float *restrict x, float *restrict dx, Shape t, const float *restrict about,
                       const float *restrict slope, const float *restrict shift, const float *restrict scale) {
    if (t.length == 1) {
        for (size_t i = 0; i < t.n; i++, x += t.channels, dy += t.channels, dx += t.channels)
            for (size_t c = 0; c < t.channels; c++)
                dx[c] = scale[c] * ((dy[c] - slope[c] * (x[c] - about[c])) + shift[c]);
        return;
    }
    for (size_t i = 0; i < t.n; i++)
        for (size_t c = 0; c < t.channels; c++, x += t.length, dy += t.length, dx += t.length) {
            float a = about[c], s = slope[c], b = shift[c], w = scale[c];
            for (size_t k = 0; k < t.length; k++) dx[k] = w * ((dy[k] - s * (x[k] - a)) + b);
        }
}

static int normalise(const float *x, float *y, const double *message, float *kept, const float *weight, const float *bias,
                     float *running_mean, float *running_variance, Shape t, double eps, double momentum) {
    float *scale = malloc(2 * t.channels * sizeof(float)), *shift = scale + t.channels;
    if (!scale) return -1;
    from_message(message, t.channels, eps, kept, weight, bias, scale, shift);
    if (running_mean) track(message, t.channels, momentum, running_mean, running_variance);
    normalise_all(x, y, t, kept, scale, shift);
    free(scale);
    return 0;
}

/* The message, and this rank's own gradients of weight and bias (where wanted). */
static void backward_sums(const float *dy, const float *x, const float *kept, double *message, float *weight, float *bias, Shape t) {
    double *first = message, *second = message + t.channels;
    both_sums(dy, x, kept, t, first, second);
    message[2 * t.channels] = 0;
    for (size_t c = 0; c < t.channels; c++) {
        second[c] -= kept[t.channels + c] * first[c];
        if (weight) weight[c] = (float)(second[c] * kept[2 * t.channels + c]);
        if (bias) bias[c] = (float)first[c];
    }
}

static int gradient(const float *dy, const float *x, float *dx, const double *message, const float *kept, const float *weight,
                    Shape t, double count) {
    float *scale = malloc(3 * t.channels * sizeof(float)), *slope = scale + t.channels, *shift = slope + t.channels;
    if (!scale) return -1;
    for (size_t c = 0; c < t.channels; c++) {
        double rest = kept[t.channels + c], inverse = kept[2 * t.channels + c];
        double s = message[t.channels + c] * inverse * inverse / count;
        scale[c] = (float)(weight ? inverse * weight[c] : inverse);
        slope[c] = (float)s;
        shift[c] = (float)(rest * s - message[c] / count);
    }
    gradient_all(dy, x, dx, t, kept, slope, shift, scale);
    free(scale);
    return 0;
}

/* ---------------------------------------------------------------- the face to Python */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Whole numbers (addresses, 0 for none; n, channels and length come last of them), then floats. */
static int take(PyObject *const *args, Py_ssize_t given, int whole, int floats, long long *out, double *real) {
    if (given != whole + floats) {
        PyErr_Format(PyExc_TypeError, "%d arguments are wanted", whole + floats);
        return -1;
    }
    for (int i = 0; i < whole; i++) out[i] = PyLong_AsLongLong(args[i]);
    for (int i = 0; i < floats; i++) real[i] = PyFloat_AsDouble(args[whole + i]);
    return PyErr_Occurred() ? -1 : 0;
}

#define AT(TYPE, I) ((TYPE *)(intptr_t)a[I])
#define SHAPE(I) ((Shape){(size_t)a[I], (size_t)a[(I) + 1], (size_t)a[(I) + 2]})
#define FREELY(CALL)                                                                                  \
    Py_BEGIN_ALLOW_THREADS CALL;                                                                      \
    Py_END_ALLOW_THREADS

/* statistics(x, message, n, channels, length) */
static PyObject *py_statistics(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    long long a[5];
    if (take(args, given, 5, 0, a, NULL) < 0) return NULL;
    Shape t = SHAPE(2);
    double *message = AT(double, 1);
    FREELY(both_sums(AT(float, 0), AT(float, 0), NULL, t, message, message + t.channels))
    message[2 * t.channels] = (double)t.n * (double)t.length;
    Py_RETURN_NONE;
}

/* normalise(x, y, message, kept, weight, bias, running_mean, running_variance, n, channels, length, eps, momentum) */
static PyObject *py_normalise(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    long long a[11];
    double r[2];
    int bad;
    if (take(args, given, 11, 2, a, r) < 0) return NULL;
    FREELY(bad = normalise(AT(float, 0), AT(float, 1), AT(double, 2), AT(float, 3), AT(float, 4), AT(float, 5), AT(float, 6),
                           AT(float, 7), SHAPE(8), r[0], r[1]))
    if (bad) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* sums(dy, x, kept, message, weight_gradient, bias_gradient, n, channels, length) */
static PyObject *py_sums(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    long long a[9];
    if (take(args, given, 9, 0, a, NULL) < 0) return NULL;
    FREELY(backward_sums(AT(float, 0), AT(float, 1), AT(float, 2), AT(double, 3), AT(float, 4), AT(float, 5), SHAPE(6)))
    Py_RETURN_NONE;
}

/* gradient(dy, x, dx, message, kept, weight, n, channels, length, count) */
static PyObject *py_gradient(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    long long a[9];
    double count;
    int bad;
    if (take(args, given, 9, 1, a, &count) < 0) return NULL;
    FREELY(bad = gradient(AT(float, 0), AT(float, 1), AT(float, 2), AT(double, 3), AT(float, 4), AT(float, 5), SHAPE(6), count))
    if (bad) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

#define FASTCALL(NAME) {#NAME, (PyCFunction)(void (*)(void))py_##NAME, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    FASTCALL(statistics), FASTCALL(normalise), FASTCALL(sums), FASTCALL(gradient), {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_batch_norm", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__batch_norm(void) { return PyModule_Create(&module); }
