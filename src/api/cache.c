/* The prefix cache: /reset_prefix_cache. With API keys it needs one, without it answers loopback only. */
#include "api/api_internal.h"

void api_reset_prefix_cache(struct call *c)
{
    struct api *a = c->api;
    if (a->conf.n_keys == 0 && !http_req_is_local(c->req)) {
        call_error(c, 403, NULL, "This path answers loopback clients only, unless an API key is set.");
        return;
    }
    qr_lib_reset_prefix_cache(atomic_load(&a->lib));
    static const char done[] = "{\"success\":true}";
    call_reply(c, 200, "application/json", done, sizeof done - 1);
}
