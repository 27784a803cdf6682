// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_context_parallel.hpp"

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void check_context_parallel(const ModelConfig& config, int ranks, ContextForm form, int tensor) {
    ContextCut::check(config.seq_length, ranks);
    if (ranks > 1 && config.layer_forward) {
        throw UsageError("--context-parallel-size " + std::to_string(ranks) +
                         ": layers of your own (ModelConfig::layer_forward) need whole sequences; "
                         "use 1");
    }
    if (ranks > 1 && config.has_latents()) {
        throw UsageError("--context-parallel-size " + std::to_string(ranks) +
                         ": latent attention (--model-type " + config.family +
                         ") needs whole sequences; use 1");
    }
    if (ranks == 1 || form == ContextForm::allgather) return;
    const int64_t heads = config.kv_heads() / tensor;
    if (heads % ranks == 0) return;
    throw UsageError("--cp-comm-type a2a: --context-parallel-size " + std::to_string(ranks) +
                     " must divide the " + std::to_string(heads) +
                     " key/value heads of a rank; use a divisor, or --cp-comm-type allgather");
}

}  // namespace vocabpipe
