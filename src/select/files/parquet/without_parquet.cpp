// SPDX-License-Identifier: Apache-2.0
// The functions of parquet.hpp in builds without Parquet.
#include "src/select/files/parquet/parquet.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

[[noreturn]] void refuse_parquet(const std::string& path) {
    throw UsageError(path +
                     ": this build has no Parquet; configure it with "
                     "-DVOCABPIPE_ENABLE_PARQUET=ON, or use .npy");
}

}  // namespace

std::unique_ptr<UtilityInput> open_parquet_utility(const std::string& path) {
    refuse_parquet(path);
}
std::unique_ptr<EmbeddingInput> open_parquet_embedding(const std::string& path) {
    refuse_parquet(path);
}
std::unique_ptr<EdgeInput> open_parquet_edges(const std::string& path) {
    refuse_parquet(path);
}
std::unique_ptr<TableOutput> create_parquet(const std::string& path,
                                            const std::vector<TableColumn>& /*columns*/) {
    refuse_parquet(path);
}

}  // namespace vocabpipe
