/*
 * update_loops.h - the loops of update.h; a template that is included once for each type of
 * elements, after
 *   UPDATE_T           float or double
 *   UPDATE_NAME(rule)  the loop's name
 *   UPDATE_SQRT        the root of that type
 *   UPDATE_FN, UPDATE_INLINE, UPDATE_LOOP  how functions are declared, and what precedes a loop
 * and defines static functions of type trii_update_fn.
 *
 * Conditions are constants in each call of a loop, and the common cases are spelled out.
 */

/* The gradient at element i. If there are scale and maximize, the sign is in the scale. */
#define UPDATE_CLIPPED(d)                                                                          \
    do {                                                                                           \
        (d) = (d)*scale;                                                                           \
        (d) = (d) > limit ? limit : (d) < -limit ? -limit : (d);                                   \
    } while (0)

/* As PyTorch's: exact at both ends. */
#define UPDATE_LERP(from, to, weight)                                                              \
    ((weight) < (UPDATE_T)0.5 ? (from) + (weight) * ((to) - (from))                                \
                              : (to) - ((to) - (from)) * ((UPDATE_T)1 - (weight)))

UPDATE_INLINE UPDATE_T UPDATE_NAME(scale_of)(const trii_update_args *args)
{
    return (UPDATE_T)((args->flags & TRII_UPDATE_MAXIMIZE) != 0 ? -args->scale : args->scale);
}

UPDATE_INLINE UPDATE_T UPDATE_NAME(limit_of)(const trii_update_args *args)
{
    return args->limit > 0 ? (UPDATE_T)args->limit : (UPDATE_T)INFINITY;
}

UPDATE_INLINE bool UPDATE_NAME(clips)(const trii_update_args *args)
{
    return args->scale != 1 || args->limit > 0 || (args->flags & TRII_UPDATE_MAXIMIZE) != 0;
}

/* Whether there is a buffer, and it counts. With a momentum that is 0 for a while, torch leaves the
 * buffer as it is. */
UPDATE_INLINE bool UPDATE_NAME(has_momentum)(const trii_update_args *args, int state,
                                             double momentum, int64_t begin, int64_t end)
{
    const UPDATE_T *kept = args->s[state];
    UPDATE_T *kept_new = args->s_new[state];

    if ((args->flags & TRII_UPDATE_MOMENTUM) == 0 || momentum != 0)
        return (args->flags & TRII_UPDATE_MOMENTUM) != 0;
    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++)
        kept_new[i] = kept[i];
    return false;
}

UPDATE_INLINE void UPDATE_NAME(sgd_loop)(const trii_update_args *args, int64_t begin, int64_t end,
                                         bool clips, bool decays, bool has_m, bool nesterov)
{
    const UPDATE_T *p = args->p, *g = args->g, *m = args->s[0];
    UPDATE_T *p_new = args->p_new, *m_new = args->s_new[0];
    UPDATE_T scale = UPDATE_NAME(scale_of)(args), limit = UPDATE_NAME(limit_of)(args);
    UPDATE_T lr = (UPDATE_T)-args->f[0], momentum = (UPDATE_T)args->f[1];
    UPDATE_T fresh = (UPDATE_T)(1 - args->f[2]), decay = (UPDATE_T)args->f[3];

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++) {
        UPDATE_T old = p[i], d = g[i];

        if (clips)
            UPDATE_CLIPPED(d);
        if (decays)
            d = d + decay * old;
        if (has_m) {
            UPDATE_T buffer = m[i] * momentum + fresh * d;

            m_new[i] = buffer;
            d = nesterov ? d + momentum * buffer : buffer;
        }
        p_new[i] = old + lr * d;
    }
}

UPDATE_FN void UPDATE_NAME(sgd)(const trii_update_args *args, int64_t begin, int64_t end)
{
    bool decays = args->f[3] != 0;
    bool has_m = UPDATE_NAME(has_momentum)(args, 0, args->f[1], begin, end);
    bool nesterov = (args->flags & TRII_UPDATE_NESTEROV) != 0, clips = UPDATE_NAME(clips)(args);

    if (!has_m && !clips && !decays)
        UPDATE_NAME(sgd_loop)(args, begin, end, false, false, false, false);
    else if (has_m && !clips && decays && nesterov)
        UPDATE_NAME(sgd_loop)(args, begin, end, false, true, true, true);
    else if (has_m && !clips && decays)
        UPDATE_NAME(sgd_loop)(args, begin, end, false, true, true, false);
    else if (has_m && !clips && !nesterov)
        UPDATE_NAME(sgd_loop)(args, begin, end, false, false, true, false);
    else
        UPDATE_NAME(sgd_loop)(args, begin, end, clips, decays, has_m, nesterov);
}

UPDATE_INLINE void UPDATE_NAME(adam_loop)(const trii_update_args *args, int64_t begin, int64_t end,
                                          bool clips, bool coupled, bool amsgrad)
{
    const UPDATE_T *p = args->p, *g = args->g, *m = args->s[0], *v = args->s[1], *w = args->s[2];
    UPDATE_T *p_new = args->p_new, *m_new = args->s_new[0], *v_new = args->s_new[1];
    UPDATE_T *w_new = args->s_new[2];
    UPDATE_T scale = UPDATE_NAME(scale_of)(args), limit = UPDATE_NAME(limit_of)(args);
    UPDATE_T size = (UPDATE_T)-args->f[0], fresh_m = (UPDATE_T)args->f[1];
    UPDATE_T beta2 = (UPDATE_T)args->f[2], fresh_v = (UPDATE_T)args->f[3];
    UPDATE_T root = (UPDATE_T)args->f[4], eps = (UPDATE_T)args->f[5];
    UPDATE_T decay = (UPDATE_T)args->f[6];

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++) {
        UPDATE_T old = p[i], d = g[i], first, second;

        if (clips)
            UPDATE_CLIPPED(d);
        if (coupled)
            d = d + decay * old;
        else
            old = old * decay;
        first = UPDATE_LERP(m[i], d, fresh_m);
        second = v[i] * beta2 + (fresh_v * d) * d;
        m_new[i] = first;
        v_new[i] = second;
        if (amsgrad) {
            UPDATE_T most = w[i];

            most = second > most || second != second ? second : most;
            w_new[i] = most;
            second = most;
        }
        p_new[i] = old + (size * first) / (UPDATE_SQRT(second) / root + eps);
    }
}

UPDATE_FN void UPDATE_NAME(adam)(const trii_update_args *args, int64_t begin, int64_t end)
{
    bool coupled = (args->flags & TRII_UPDATE_DECOUPLED) == 0 && args->f[6] != 0;
    bool amsgrad = (args->flags & TRII_UPDATE_AMSGRAD) != 0, clips = UPDATE_NAME(clips)(args);
    trii_update_args mine = *args;
    double f[TRII_UPDATE_NUMBERS];

    if (!coupled && (args->flags & TRII_UPDATE_DECOUPLED) == 0) { /* no decay at all */
        for (int k = 0; k < TRII_UPDATE_NUMBERS - 1; k++)
            f[k] = args->f[k];
        f[TRII_UPDATE_NUMBERS - 1] = 1;
        mine.f = f;
    }
    if (!coupled && !amsgrad && !clips)
        UPDATE_NAME(adam_loop)(&mine, begin, end, false, false, false);
    else if (!coupled && !amsgrad)
        UPDATE_NAME(adam_loop)(&mine, begin, end, true, false, false);
    else
        UPDATE_NAME(adam_loop)(&mine, begin, end, clips, coupled, amsgrad);
}

UPDATE_INLINE void UPDATE_NAME(rmsprop_loop)(const trii_update_args *args, int64_t begin,
                                             int64_t end, bool has_b, bool centered)
{
    const UPDATE_T *p = args->p, *g = args->g, *s = args->s[0], *b = args->s[1];
    const int mean_at = (args->flags & TRII_UPDATE_MOMENTUM) != 0 ? 2 : 1;
    const UPDATE_T *a = args->s[mean_at];
    UPDATE_T *p_new = args->p_new, *s_new = args->s_new[0], *b_new = args->s_new[1];
    UPDATE_T *a_new = args->s_new[mean_at];
    UPDATE_T scale = UPDATE_NAME(scale_of)(args), limit = UPDATE_NAME(limit_of)(args);
    UPDATE_T lr = (UPDATE_T)-args->f[0], alpha = (UPDATE_T)args->f[1];
    UPDATE_T fresh = (UPDATE_T)(1 - args->f[1]), eps = (UPDATE_T)args->f[2];
    UPDATE_T decay = (UPDATE_T)args->f[3], momentum = (UPDATE_T)args->f[4];
    bool decays = args->f[3] != 0;

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++) {
        UPDATE_T old = p[i], d = g[i], square, root;

        UPDATE_CLIPPED(d);
        d = decays ? d + decay * old : d;
        square = s[i] * alpha + (fresh * d) * d;
        s_new[i] = square;
        if (centered) {
            UPDATE_T mean = UPDATE_LERP(a[i], d, fresh);

            a_new[i] = mean;
            square = square - mean * mean;
        }
        root = UPDATE_SQRT(square) + eps;
        if (has_b) {
            UPDATE_T buffer = b[i] * momentum + d / root;

            b_new[i] = buffer;
            p_new[i] = old + lr * buffer;
        } else {
            p_new[i] = old + (lr * d) / root;
        }
    }
}

UPDATE_FN void UPDATE_NAME(rmsprop)(const trii_update_args *args, int64_t begin, int64_t end)
{
    bool has_b = UPDATE_NAME(has_momentum)(args, 1, args->f[4], begin, end);
    bool centered = (args->flags & TRII_UPDATE_CENTERED) != 0;

    if (!has_b && !centered)
        UPDATE_NAME(rmsprop_loop)(args, begin, end, false, false);
    else if (has_b && !centered)
        UPDATE_NAME(rmsprop_loop)(args, begin, end, true, false);
    else
        UPDATE_NAME(rmsprop_loop)(args, begin, end, has_b, true);
}

UPDATE_FN void UPDATE_NAME(adagrad)(const trii_update_args *args, int64_t begin, int64_t end)
{
    const UPDATE_T *p = args->p, *g = args->g, *s = args->s[0];
    UPDATE_T *p_new = args->p_new, *s_new = args->s_new[0];
    UPDATE_T scale = UPDATE_NAME(scale_of)(args), limit = UPDATE_NAME(limit_of)(args);
    UPDATE_T lr = (UPDATE_T)-args->f[0], eps = (UPDATE_T)args->f[1], decay = (UPDATE_T)args->f[2];
    bool decays = args->f[2] != 0;

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++) {
        UPDATE_T old = p[i], d = g[i], sum;

        UPDATE_CLIPPED(d);
        d = decays ? d + decay * old : d;
        sum = s[i] + d * d;
        s_new[i] = sum;
        p_new[i] = old + (lr * d) / (UPDATE_SQRT(sum) + eps);
    }
}

UPDATE_FN void UPDATE_NAME(lerp)(const trii_update_args *args, int64_t begin, int64_t end)
{
    const UPDATE_T *p = args->p, *g = args->g;
    UPDATE_T *p_new = args->p_new, weight = (UPDATE_T)args->f[0];

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++)
        p_new[i] = UPDATE_LERP(p[i], g[i], weight);
}

UPDATE_FN void UPDATE_NAME(clip)(const trii_update_args *args, int64_t begin, int64_t end)
{
    const UPDATE_T *g = args->g;
    UPDATE_T *p_new = args->p_new;
    UPDATE_T scale = UPDATE_NAME(scale_of)(args), limit = UPDATE_NAME(limit_of)(args);

    UPDATE_LOOP
    for (int64_t i = begin; i < end; i++) {
        UPDATE_T d = g[i];

        UPDATE_CLIPPED(d);
        p_new[i] = d;
    }
}

#undef UPDATE_CLIPPED
#undef UPDATE_LERP
