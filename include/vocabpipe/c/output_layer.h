/* SPDX-License-Identifier: Apache-2.0 */
/* S and T, the output layer of one vocabulary shard, on tensors of the caller in the host's memory
 * (docs/c-interface.md). The library is libvocabpipe_c_output_layer.so, which needs OpenMP.
 *
 *     on every shard         vp_output_layer_score             S
 *     between the shards     all-gather of the statistics, by the caller
 *     on every shard         vp_output_layer_combine           losses, factors of the gradients
 *                            vp_output_layer_input_gradient    the shard's part of dX
 *                            vp_output_layer_weight_gradient   T: dW
 *     between the shards     the sum of the parts of dX, by the caller
 *
 * Errors and structs are as in vocabpipe.h; the line about an error is
 * vp_output_layer_last_error(). A handle is used by one thread at a time. N tokens, h hidden size,
 * v rows of the shard, V rows of all K shards. */
#ifndef VOCABPIPE_C_OUTPUT_LAYER_H
#define VOCABPIPE_C_OUTPUT_LAYER_H

#include "vocabpipe/c/vocabpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A view of a tensor, with the members of DLPack's DLTensor in their order: a DLTensor* may be
 * passed as a vp_tensor*. Rows may lie apart; the elements of a row may not. */
typedef struct vp_tensor {
    void* data;
    int32_t device_type; /* 1: the host */
    int32_t device_id;   /* not read */
    int32_t ndim;
    uint8_t type_code; /* 0: int, 2: float, 4: bfloat */
    uint8_t type_bits;
    uint16_t type_lanes; /* 1 */
    int64_t* shape;
    int64_t* strides; /* in elements; NULL: dense */
    uint64_t byte_offset;
} vp_tensor;

typedef struct vp_output_layer vp_output_layer;

typedef struct vp_output_layer_options {
    size_t size;
    int64_t first_row;  /* of the shard, in the whole vocabulary */
    int64_t vocab_size; /* V; default: first_row + v */
    float label_smoothing;
    float z_loss;
    float logit_softcap; /* default: none */
    int32_t threads;     /* default: 1 */
} vp_output_layer_options;
#define VP_OUTPUT_LAYER_OPTIONS \
    { sizeof(vp_output_layer_options), 0, 0, 0, 0, 0, 0 }

/* Why the last call of this thread that failed did so; "" if none did. */
VP_API const char* vp_output_layer_last_error(void);
/* `weight` (v, h) in fp32 or bf16 is not copied, and must outlive the handle. */
VP_API vp_status vp_output_layer_make(const vp_output_layer_options* options,
                                      const vp_tensor* weight, vp_output_layer** layer);
VP_API void vp_output_layer_free(vp_output_layer* layer);
/* S: reads hidden (N, h) in the type of the weight and labels (N) int32, of which negative ones are
 * ignored; writes exp_logits (N, v) in that type and statistics (N, 4) fp32. */
VP_API vp_status vp_output_layer_score(vp_output_layer* layer, const vp_tensor* hidden,
                                       const vp_tensor* labels, vp_tensor* exp_logits,
                                       vp_tensor* statistics);
/* Reads the statistics (K N, 4) of all shards, shard by shard, of which this is number `shard`, and
 * gradients (N) fp32, d(total loss) / d(loss of a token); writes losses (N) and factors (N, 2),
 * fp32. Every shard gets the same losses. */
VP_API vp_status vp_output_layer_combine(vp_output_layer* layer, const vp_tensor* statistics,
                                         int32_t shard, const vp_tensor* labels,
                                         const vp_tensor* gradients, vp_tensor* losses,
                                         vp_tensor* factors);
/* Writes hidden_gradient (N, h) fp32, which the sum over all shards completes. */
VP_API vp_status vp_output_layer_input_gradient(vp_output_layer* layer, const vp_tensor* exp_logits,
                                                const vp_tensor* factors, const vp_tensor* labels,
                                                const vp_tensor* gradients,
                                                vp_tensor* hidden_gradient);
/* T: writes weight_gradient (v, h) fp32, or adds to it if `accumulate` is not 0. */
VP_API vp_status vp_output_layer_weight_gradient(vp_output_layer* layer, const vp_tensor* hidden,
                                                 const vp_tensor* exp_logits,
                                                 const vp_tensor* factors, const vp_tensor* labels,
                                                 const vp_tensor* gradients,
                                                 vp_tensor* weight_gradient, int32_t accumulate);

#ifdef __cplusplus
}
#endif

#endif
