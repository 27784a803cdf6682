// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"

namespace vocabpipe {

/// Refuses a config.json with a key that nobody has read and that is not known to leave the model
/// as it is: it may say something that the family's reader does not know of. Null is as good as no
/// key. Call it when everything else has been read. Throws InputFileError.
void refuse_unknown_keys(const StrictJson& json);

}  // namespace vocabpipe
