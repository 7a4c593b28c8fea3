/* /v1/models and /v1/models/{id}. */
#include "api/api_internal.h"

#include <string.h>

static void card(struct qr_json_writer *w, struct api *a, const char *name)
{
    const struct qr_lib_info *info = qr_lib_info(atomic_load(&a->lib));
    qr_jw_obj(w);
    qr_jw_key(w, "id");
    qr_jw_str(w, name);
    qr_jw_key(w, "object");
    qr_jw_str(w, "model");
    qr_jw_key(w, "created");
    qr_jw_int(w, a->started);
    qr_jw_key(w, "owned_by");
    qr_jw_str(w, "quire");
    qr_jw_key(w, "root");
    qr_jw_str(w, info->served_name);
    qr_jw_key(w, "parent");
    qr_jw_null(w);
    qr_jw_key(w, "max_model_len");
    qr_jw_int(w, info->max_model_len);
    qr_jw_key(w, "permission");
    qr_jw_arr(w);
    qr_jw_arr_end(w);
    qr_jw_obj_end(w);
}

void api_models(struct call *c)
{
    struct api *a = c->api;
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "object");
    qr_jw_str(&w, "list");
    qr_jw_key(&w, "data");
    qr_jw_arr(&w);
    for (int i = 0; i < a->conf.n_served_names; i++) card(&w, a, a->conf.served_names[i]);
    if (a->conf.n_served_names == 0) card(&w, a, a->model_name);
    qr_jw_arr_end(&w);
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}

void api_model(struct call *c)
{
    struct api *a = c->api;
    const char *id = c->path + strlen("/v1/models/");
    const char *found = a->conf.n_served_names == 0 && strcmp(id, a->model_name) == 0 ? a->model_name : NULL;
    for (int i = 0; i < a->conf.n_served_names; i++)
        if (strcmp(id, a->conf.served_names[i]) == 0) found = a->conf.served_names[i];
    if (!found) {
        call_error(c, 404, "model", "The model does not exist. Served: %.200s.", a->model_name);
        return;
    }
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    card(&w, a, found);
    call_reply_json(c, 200, &b);
}
