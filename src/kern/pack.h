/* Packed weight matrices: what GEMM kernels read.
 *
 * Owns: the byte layout of each format (drawn in kern/pack/<format>.c). Refuses to know: files, models,
 * threads. Threads: panels are independent; different panels may be packed at once.
 * Lifetime: a qr_wmat points into memory that its maker owns.
 *
 * A matrix W has n outputs and k inputs; y = W x. It is cut into panels of QR_PANEL outputs; the last is
 * padded with zeros. A panel is contiguous, and within it groups of k follow each other, so a GEMV streams.
 * Packed bytes are at most 1.03 times the file's bytes, for every type. */
#ifndef QR_KERN_PACK_H
#define QR_KERN_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "kern/qtype.h"

#define QR_PANEL 16 // outputs a panel: one 512-bit register of float32

struct qr_wmat {
    enum qr_wfmt fmt;
    int n, k;           // outputs, inputs
    int n_panels;       // ceil(n / QR_PANEL)
    size_t panel_bytes; // a multiple of 64
    uint8_t *data;      // n_panels * panel_bytes, 64-byte aligned, followed by 64 readable bytes
};

// Fills everything but data. k must be a multiple of the group of fmt.
void qr_wmat_init(struct qr_wmat *w, enum qr_wfmt fmt, int n, int k);
size_t qr_wmat_bytes(const struct qr_wmat *w); // what data must hold, the 64 readable bytes included

// Packs panel i from file rows: row r of W is at rows[r - i * QR_PANEL] for the panel's 16 rows (NULL: a row
// of zeros), stored as `type` whose packed format is w->fmt; F32 takes any.
void qr_pack_panel(const struct qr_wmat *w, int i, enum qr_qtype type, const void *const rows[QR_PANEL]);

// out[0..k) = row `row` of W as float32: exactly the file's values (embedding look-up, tied weights).
void qr_wmat_row(const struct qr_wmat *w, int row, float *out);
// The same for lane `lane` of panel i, padding lanes included: out[j * stride] = value j.
void qr_panel_unpack_lane(const struct qr_wmat *w, int i, int lane, float *out, size_t stride);

#endif
