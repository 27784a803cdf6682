// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// Cores that the process may use: those of its affinity mask, and no more than the CPU quota of
/// its control groups, rounded up. At least 1.
[[nodiscard]] int usable_cores();

}  // namespace vocabpipe
