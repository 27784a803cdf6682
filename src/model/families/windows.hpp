// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// The window size in tokens that Gemma 2 and Mistral were published with; transformers' default of
/// sliding_window.
inline constexpr int64_t kDefaultWindow = 4096;

/// Whether a layer of a family has the window.
using HasWindow = std::function<bool(int layer)>;

/// Lets these layers see `window` tokens. 0, or no such layer: none has a window.
void set_windows(ModelConfig& config, int64_t window, const HasWindow& windowed);

/// For families with the window in all layers.
[[nodiscard]] inline bool every_layer(int /*layer*/) {
    return true;
}

}  // namespace vocabpipe
