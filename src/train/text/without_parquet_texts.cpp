// SPDX-License-Identifier: Apache-2.0
// The functions of parquet_texts.hpp in builds without Parquet.
#include "src/train/text/parquet_texts.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

void read_parquet_texts(const std::string& path, const std::string& column,
                        const std::function<void(const TextRow&)>& /*take*/,
                        const std::function<void(int64_t)>& /*progress*/) {
    check_parquet_texts(path, column);
}

void check_parquet_texts(const std::string& path, const std::string& /*column*/) {
    throw UsageError(path +
                     ": is a Parquet file, and this build has no Parquet; configure it with "
                     "-DVOCABPIPE_ENABLE_PARQUET=ON, or write JSON lines");
}

}  // namespace vocabpipe
