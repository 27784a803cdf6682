// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a file of loss weights has as many finite ones as it says, none negative, or
// throws InputFileError of one line.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/train/data/loss_weights_file.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    const int file = ::memfd_create("weights", 0);
    if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
    try {
        const LossWeightsFile weights("/proc/self/fd/" + std::to_string(file));
        const LossWeightsFile::Totals totals = weights.check();
        if (!std::isfinite(totals.sum) || totals.sum < 0) std::abort();
        weights.require_size(totals.positive);
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    ::close(file);
    return 0;
}
