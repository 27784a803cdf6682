// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/plain_heads.hpp"

#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void check_plain_heads(const ModelConfig& c) {
    if (c.kv_heads() != c.num_attention_heads) {
        throw UsageError("--num-query-groups " + std::to_string(c.num_query_groups) +
                         ": files of " + c.family + " have as many as --num-attention-heads " +
                         std::to_string(c.num_attention_heads) +
                         "; leave it out, or choose another --model-type");
    }
    if (c.query_columns() != c.hidden_size) {
        throw UsageError("--kv-channels " + std::to_string(c.kv_channels) + ": files of " +
                         c.family +
                         " have --hidden-size / --num-attention-heads; leave it out, or choose "
                         "another --model-type");
    }
}

}  // namespace vocabpipe
