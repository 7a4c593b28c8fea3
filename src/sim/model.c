#include "sim/model.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static const struct qr_sim_model models[] = {
#define QR_SIM_MODEL(name, layers, hidden, heads, kv, dim, ffn, matrices, vocab, positions, tied, ctx, bits)          \
    {name, layers, hidden, heads, kv, dim, ffn, matrices, vocab, positions, tied, ctx, bits, 0, ""},
#include "sim/models.def"
#undef QR_SIM_MODEL
};
static const struct qr_sim_hardware machines[] = {
#define QR_SIM_HARDWARE(name, gib, gbs, tflops, pcie, link, link_us, layer_us, step_us, row_us, compute, memory)      \
    {name, gib, gbs, tflops, pcie, link, link_us, layer_us, step_us, row_us, compute, memory},
#include "sim/hardware.def"
#undef QR_SIM_HARDWARE
};
enum { N_MODELS = sizeof models / sizeof models[0], N_MACHINES = sizeof machines / sizeof machines[0] };

#define CONFIG_BYTES_MAX (1u << 20) // a config.json has a few kB

static enum qr_status parse_config(const char *path, const struct qr_buf *b, struct qr_sim_model *out, struct qr_error *err)
{
    enum qr_status st = qr_sim_model_parse(b->data ? b->data : "", b->len, out, err);
    return st == QR_OK ? st : qr_fail_in(err, st, path);
}

static enum qr_status read_config(const char *path, FILE *f, struct qr_sim_model *out, struct qr_error *err)
{
    struct qr_buf b = {0};
    char part[4096];
    for (size_t n; b.len <= CONFIG_BYTES_MAX && (n = fread(part, 1, sizeof part, f)) > 0;) qr_buf_add(&b, part, n);
    enum qr_status st;
    if (ferror(f))
        st = qr_fail(err, QR_EIO, "%.150s: cannot be read", path);
    else if (b.failed)
        st = qr_fail(err, QR_ENOMEM, "no memory for %.150s", path);
    else if (b.len > CONFIG_BYTES_MAX)
        st = qr_fail(err, QR_ETOOBIG, "%.150s: expected a config.json of at most 1 MiB", path);
    else
        st = parse_config(path, &b, out, err);
    qr_buf_fini(&b);
    if (st == QR_OK) snprintf(out->name, sizeof out->name, "%.60s", path);
    return st;
}

enum qr_status qr_sim_model_find(const char *name, struct qr_sim_model *out, struct qr_error *err)
{
    char list[192];
    for (int i = 0; i < N_MODELS; i++)
        if (strcmp(models[i].name, name) == 0) {
            *out = models[i];
            return QR_OK;
        }
    size_t n = strlen(name);
    bool is_path = strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
    FILE *f = is_path ? fopen(name, "r") : NULL;
    if (f) {
        enum qr_status st = read_config(name, f, out, err);
        fclose(f);
        return st;
    }
    qr_sim_model_names(list, sizeof list);
    return qr_fail(err, QR_ENOTFOUND, "no model \"%.60s\": expected a config.json that can be read, or %s", name, list);
}

void qr_sim_model_names(char *out, size_t cap)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < N_MODELS && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? ", " : "", models[i].name);
}

int64_t qr_sim_layer_weights(const struct qr_sim_model *m)
{
    int64_t h = m->hidden, q = (int64_t)m->n_heads * m->head_dim, kv = (int64_t)m->n_kv_heads * m->head_dim;
    return 2 * h * q + 2 * h * kv + (int64_t)m->n_ffn_matrices * h * m->ffn;
}

// Vectors of a layer: two norms, and with the two-matrix layer of OPT biases everywhere.
static int64_t layer_vectors(const struct qr_sim_model *m)
{
    int64_t h = m->hidden;
    return m->n_ffn_matrices == 2 ? 4 * h + 4 * h + m->ffn + h : 2 * h;
}

static int64_t last_norm(const struct qr_sim_model *m)
{
    return m->n_ffn_matrices == 2 ? 2 * m->hidden : m->hidden;
}

static int64_t table_weights(const struct qr_sim_model *m)
{
    int64_t embedding = (int64_t)m->n_vocab * m->hidden;
    return embedding * (m->tied ? 1 : 2) + (int64_t)m->n_positions * m->hidden;
}

int64_t qr_sim_params(const struct qr_sim_model *m)
{
    return m->n_layers * (qr_sim_layer_weights(m) + layer_vectors(m)) + table_weights(m) + last_norm(m);
}

double qr_sim_layer_bytes(const struct qr_sim_model *m)
{
    return (double)qr_sim_layer_weights(m) * m->bits / 8;
}

double qr_sim_weight_bytes(const struct qr_sim_model *m)
{
    if (m->file_bytes > 0) return m->file_bytes;
    double other = (double)(m->n_layers * layer_vectors(m) + table_weights(m) + last_norm(m));
    return m->n_layers * qr_sim_layer_bytes(m) + 2 * other;
}

double qr_sim_kv_bytes(const struct qr_sim_model *m)
{
    return 2.0 * m->n_layers * m->n_kv_heads * m->head_dim * 2;
}

enum qr_status qr_sim_hardware_find(const char *name, struct qr_sim_hardware *out, struct qr_error *err)
{
    struct qr_buf list = {0};
    for (int i = 0; i < N_MACHINES; i++)
        if (strcmp(machines[i].name, name) == 0) {
            *out = machines[i];
            return QR_OK;
        }
    for (int i = 0; i < N_MACHINES; i++) qr_buf_printf(&list, "%s%s", i ? ", " : "", machines[i].name);
    enum qr_status st = qr_fail(err, QR_ENOTFOUND, "--hardware: expected one of %s, got \"%.40s\"",
                                list.data ? list.data : "", name);
    qr_buf_fini(&list);
    return st;
}

const char *qr_sim_hardware_text(char out[QR_SIM_HARDWARE_TEXT], const struct qr_sim_hardware *h, int32_t n_devices)
{
    if (n_devices == 1)
        snprintf(out, QR_SIM_HARDWARE_TEXT, "%s", h->name);
    else
        snprintf(out, QR_SIM_HARDWARE_TEXT, "%d x %s", n_devices, h->name);
    return out;
}

enum qr_status qr_sim_memory(const struct qr_sim_model *m, const struct qr_sim_hardware *h, int32_t n_devices,
                             double share, int32_t n_tokens, struct qr_sim_memory *out, struct qr_error *err)
{
    struct qr_sim_memory o = {.total = h->memory_gib * 0x1p30 * n_devices, .weights = qr_sim_weight_bytes(m)};
    // The widest moment of a layer: its input, its residual and the feed-forward's hidden values, in 16 bits.
    o.activations = (double)n_tokens * (2.0 * m->hidden + m->ffn) * 2;
    o.kv = o.total * share - o.weights - o.activations;
    o.n_slots = o.kv > 0 ? (int64_t)(o.kv / qr_sim_kv_bytes(m)) : 0;
    if (o.n_slots < 1)
        return qr_fail(err, QR_ETOOBIG,
                       "%s does not fit: %s %s %.1f GB, of which %.2f may be used; weights take %.1f GB, "
                       "activations %.1f GB: nothing is left for KV",
                       m->name, qr_sim_hardware_text((char[QR_SIM_HARDWARE_TEXT]){0}, h, n_devices), n_devices == 1 ? "has" : "have",
                       o.total * 1e-9, share, o.weights * 1e-9, o.activations * 1e-9);
    *out = o;
    return QR_OK;
}
