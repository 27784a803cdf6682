// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/train/data/data_file.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// True if the file starts with the magic of an llm.c token shard, of any version.
[[nodiscard]] bool is_llmc_shard(const DataFile& file);

/// The shards in the order given as one stream; `name` is what the user asked for. InputFileError
/// on an unknown magic or version, a wrong length, or shards of different families.
[[nodiscard]] std::unique_ptr<TokenSource> open_llmc_shards(const std::string& name,
                                                            std::vector<DataFile> shards);

}  // namespace vocabpipe
