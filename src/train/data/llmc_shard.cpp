// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/llmc_shard.hpp"

#include <array>
#include <utility>

#include "src/train/data/file_tokens.hpp"
#include "src/train/data/identify_file.hpp"
#include "src/train/data/llmc_format.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using std::to_string;

using llmc::Family;
using llmc::kShardHeaderBytes;

constexpr std::array kFamilies{llmc::kGpt2, llmc::kLlama3};

const Family* family_of(const DataFile& file) {
    if (file.size() < sizeof(int32_t)) {
        return nullptr;
    }
    const auto magic = file.load<int32_t>(0);
    for (const Family& family : kFamilies) {
        if (family.magic == magic) {
            return &family;
        }
    }
    return nullptr;
}

[[noreturn]] void fail_shard(const DataFile& file, const std::string& reason) {
    throw InputFileError(file.path() + ": " + reason);
}

/// Returns the number of tokens.
int64_t check_shard(const DataFile& file, const Family& family) {
    if (file.size() < kShardHeaderBytes) {
        fail_shard(file, "has " + to_string(file.size()) + " bytes, but the header of an " +
                             std::string(family.name) + " has 1024; the file is incomplete");
    }
    const auto version = file.load<int32_t>(4);
    if (version != family.version) {
        fail_shard(file, "version " + to_string(version) + " of an " + family.name +
                             " is not supported; expected " + to_string(family.version));
    }
    const auto count = file.load<int32_t>(8);
    if (count < 0) {
        fail_shard(file, "the header declares " + to_string(count) + " tokens");
    }
    const auto expected = kShardHeaderBytes + static_cast<uint64_t>(count) *
                                                  static_cast<uint64_t>(token_bytes(family.type));
    if (file.size() != expected) {
        fail_shard(file, "has " + to_string(file.size()) + " bytes, but its header declares " +
                             to_string(count) + " tokens of type " +
                             std::string(token_type_name(family.type)) + ", which is " +
                             to_string(expected) + " bytes; the file is damaged or incomplete");
    }
    return count;
}

}  // namespace

bool is_llmc_shard(const DataFile& file) {
    return family_of(file) != nullptr;
}

std::unique_ptr<TokenSource> open_llmc_shards(const std::string& name,
                                              std::vector<DataFile> shards) {
    if (shards.empty()) {
        throw InputFileError(name + ": has no shards");
    }
    const Family* family = family_of(shards.front());
    const std::string first = shards.front().path();
    std::unique_ptr<FileTokens> tokens;
    for (DataFile& shard : shards) {
        const Family* other = family_of(shard);
        if (other == nullptr) {
            fail_shard(shard,
                       "is not an llm.c token shard but " + identify_file(shard).description);
        }
        if (other != family) {
            fail_shard(shard, "is an " + std::string(other->name) + ", but " + first + " is an " +
                                  family->name + "; use shards of one family");
        }
        const int64_t count = check_shard(shard, *family);
        if (!tokens) {
            TokenSourceInfo info;
            info.name = name;
            info.format = family->name;
            info.type = family->type;
            info.end_of_document = family->end_of_document;
            tokens = std::make_unique<FileTokens>(std::move(info));
        }
        tokens->append(std::move(shard), kShardHeaderBytes, count);
    }
    return tokens;
}

}  // namespace vocabpipe
