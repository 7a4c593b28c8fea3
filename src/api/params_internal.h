/* What params.c and the readers of list-like fields share.
 *
 * Owns: the signature of a field's reader. Refuses to know: the table. Threads, lifetime: as params.h. */
#ifndef QR_API_PARAMS_INTERNAL_H
#define QR_API_PARAMS_INTERNAL_H

#include "api/params.h"

typedef enum qr_status field_fn(struct api_params *p, const char *name, qr_json *v,
                                const struct api_limits *lim, struct qr_error *err);

field_fn field_stream_options, field_stop, field_stop_ids, field_logit_bias, field_allowed, field_bad_words,
    field_response_format, field_cache_salt, field_request_id, field_truncation_side, field_kwargs,
    field_logprobs, field_chat_template, field_early_stopping, field_user;

enum qr_status field_type_error(struct qr_error *err, const char *name, const char *expected, qr_json *v);

// Beam search with what it cannot be combined with: QR_ENOTSUP names the field.
enum qr_status beam_check(struct api_params *p, struct qr_error *err) QR_MUST_CHECK;

#endif
