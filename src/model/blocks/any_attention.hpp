// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/attention.hpp"
#include "src/model/blocks/latent_attention.hpp"
#include "src/model/blocks/one_of.hpp"

namespace vocabpipe {

/// The attention of a decoder layer. Another kind is a block of its own and a row here.
using AnyAttention = OneOf<Attention, LatentAttention>;

}  // namespace vocabpipe
