// SPDX-License-Identifier: Apache-2.0
// The flags of commands that run a saved model over samples, forward only.
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/support/command.hpp"
#include "src/train/score/forward_options.hpp"

#include <string>

namespace vocabpipe::tool {

/// --load.
[[nodiscard]] Flag load_flag(ForwardOptions& o);
/// Data, and what of them counts.
[[nodiscard]] FlagGroup forward_data_flags(ForwardOptions& o);
/// How the model is cut, and in what order it runs.
[[nodiscard]] FlagGroup forward_schedule_flags(ForwardOptions& o);
/// --device, as device_factory() takes it, and threads.
[[nodiscard]] FlagGroup forward_device_flags(std::string& device, ForwardOptions& o);

}  // namespace vocabpipe::tool
