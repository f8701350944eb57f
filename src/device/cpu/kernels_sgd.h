/*
 * kernels_sgd.h - the update of stochastic gradient descent; a template, see vec.h.
 *
 * One loop, whose conditions are constants in each call, and the common cases spelled out.
 */

VEC_INLINE void sgd_loop(const trii_sgd_args *args, int64_t begin, int64_t end, bool decays,
                         bool has_m, bool has_new, bool nesterov, bool maximize)
{
    const float *p = args->p, *g = args->g, *m = args->m;
    float *p_new = args->p_new, *m_new = args->m_new;
    float lr = args->lr, momentum = args->momentum, fresh = args->fresh, decay = args->decay;

    VEC_LOOP
    for (int64_t i = begin; i < end; i++) {
        float old = p[i], d = maximize ? -g[i] : g[i];

        if (decays)
            d = d + decay * old;
        if (has_new) {
            float buffer = has_m ? m[i] * momentum + fresh * d : d;

            m_new[i] = buffer;
            d = nesterov ? d + momentum * buffer : buffer;
        }
        p_new[i] = old + lr * d;
    }
}

VEC_FN void sgd(const trii_sgd_args *args, int64_t begin, int64_t end)
{
    bool decays = args->decay != 0, has_m = args->m != NULL, has_new = args->m_new != NULL;

    if (!has_new && !args->maximize && !decays)
        sgd_loop(args, begin, end, false, false, false, false, false);
    else if (has_m && has_new && !args->maximize && decays && args->nesterov)
        sgd_loop(args, begin, end, true, true, true, true, false);
    else if (has_m && has_new && !args->maximize && decays)
        sgd_loop(args, begin, end, true, true, true, false, false);
    else if (has_m && has_new && !args->maximize && !args->nesterov)
        sgd_loop(args, begin, end, false, true, true, false, false);
    else
        sgd_loop(args, begin, end, decays, has_m, has_new, args->nesterov, args->maximize);
}
