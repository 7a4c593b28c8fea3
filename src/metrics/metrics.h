/* Counters, gauges and histograms, and their Prometheus text.
 *
 * Owns: every series of metrics.def, from the start and at zero. Refuses to know: requests, HTTP.
 * Threads: add, set and observe from any thread, lock-free; render and describe take a lock of their own.
 * Lifetime: _new to _free. */
#ifndef QR_METRICS_METRICS_H
#define QR_METRICS_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/snapshot.h"

enum qr_metric {
#define QR_COUNTER(id, name, label, help) QR_METRIC_##id,
#define QR_GAUGE(id, name, label, help) QR_METRIC_##id,
#define QR_HIST(id, name, family, help)
#include "metrics/metrics.def"
#undef QR_COUNTER
#undef QR_GAUGE
#undef QR_HIST
    QR_METRIC_COUNT
};

enum qr_hist {
#define QR_COUNTER(id, name, label, help)
#define QR_GAUGE(id, name, label, help)
#define QR_HIST(id, name, family, help) QR_HIST_##id,
#include "metrics/metrics.def"
#undef QR_COUNTER
#undef QR_GAUGE
#undef QR_HIST
    QR_HIST_COUNT
};

struct qr_metrics;

enum qr_status qr_metrics_new(struct qr_metrics **out) QR_MUST_CHECK;
void qr_metrics_free(struct qr_metrics **m);

// What is known once a model is loaded. cache_labels is `block_size="16",num_gpu_blocks="64"`: the labels of
// vllm:cache_config_info. Token histograms end at tokens_max.
struct qr_metrics_about {
    const char *model_name, *cache_labels, *version;
    uint64_t tokens_max;
};
enum qr_status qr_metrics_describe(struct qr_metrics *m, const struct qr_metrics_about *about) QR_MUST_CHECK;

void qr_metric_add(struct qr_metrics *m, enum qr_metric id, double v);
void qr_metric_set(struct qr_metrics *m, enum qr_metric id, double v); // gauges, and counters kept elsewhere
double qr_metric_get(const struct qr_metrics *m, enum qr_metric id);
// Times in nanoseconds, counts as they are; `times` equal observations at once.
void qr_metric_observe(struct qr_metrics *m, enum qr_hist id, uint64_t v, uint64_t times);
// Copies the engine's gauges and counters in.
void qr_metrics_take(struct qr_metrics *m, const struct qr_snapshot *s);

// Prometheus text 0.0.4, everything; well under a millisecond.
void qr_metrics_render(struct qr_metrics *m, struct qr_buf *out);

#endif
