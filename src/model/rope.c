/* Rotary positions: the frequencies of a model, and the cosines and sines of a position. */
#include <math.h>

#include "model/model_internal.h"

// Llama 3: wavelengths longer than the original context are stretched by the factor, short ones stay, the
// rest is blended.
static double stretch_llama3(const struct model_config *c, double freq)
{
    double turns = c->rope_ctx * freq / (2 * M_PI); // in the original context
    if (turns < c->rope_low) return freq / c->rope_factor;
    if (turns > c->rope_high) return freq;
    double keep = (turns - c->rope_low) / (c->rope_high - c->rope_low);
    return (1 - keep) * freq / c->rope_factor + keep * freq;
}

enum qr_status model_rope_freqs(const struct model_config *c, const float *factors, float *inv_freq,
                                struct qr_error *err)
{
    for (int i = 0; i < c->d_rot / 2; i++) {
        if (factors && !(factors[i] > 0x1p-64f && factors[i] < 0x1p64f)) {
            return qr_fail(err, QR_EFORMAT,
                           "model: tensor rope_freqs.weight: element %d: expected a positive number, got %g",
                           i, (double)factors[i]);
        }
        double freq = pow(c->rope_base, -2.0 * i / c->d_rot);
        // A file that carries factors per pair has its llama3 scaling in them.
        if (factors)
            freq /= factors[i];
        else if (c->rope_scaling == MODEL_ROPE_LLAMA3)
            freq = stretch_llama3(c, freq);
        if (c->rope_scaling == MODEL_ROPE_LINEAR) freq /= c->rope_factor;
        inv_freq[i] = (float)freq;
    }
    return QR_OK;
}

void model_rope_row(const float *inv_freq, int d_rot, int pos, float *cs)
{
    for (int i = 0; i < d_rot / 2; i++) {
        // The angle is rounded to float32 as the models' trainers did; its cosine and sine are exact to the
        // last bit or so.
        double angle = (double)((float)pos * inv_freq[i]);
        cs[2 * i] = (float)cos(angle);
        cs[2 * i + 1] = (float)sin(angle);
    }
}
