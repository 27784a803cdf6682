// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"

namespace vocabpipe {

/// Refuses a config.json with an unread key unless the key is known not to change the model: it may
/// describe something that the family's reader does not know. A null key counts as absent. Call it
/// after everything else has been read. Throws InputFileError.
void refuse_unknown_keys(const StrictJson& json);

}  // namespace vocabpipe
