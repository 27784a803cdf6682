// SPDX-License-Identifier: Apache-2.0
// Finds the format of token files by their names and first bytes, and opens them as one stream.
#include "vocabpipe/open_tokens.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "src/support/split_text.hpp"
#include "src/train/data/data_file.hpp"
#include "src/train/data/file_tokens.hpp"
#include "src/train/data/identify_file.hpp"
#include "src/train/data/llmc_shard.hpp"
#include "src/train/data/matching_files.hpp"
#include "src/train/data/megatron_reader.hpp"
#include "src/train/data/weighted_tokens.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

bool exists(const std::string& path) {
    std::error_code error;
    return std::filesystem::exists(path, error);
}

std::string without_suffix(const std::string& path, std::string_view suffix) {
    return path.ends_with(suffix) ? path.substr(0, path.size() - suffix.size()) : std::string();
}

/// The prefix if `path` means a Megatron pair, else empty.
std::string megatron_prefix(const std::string& path) {
    if (path.ends_with(".idx")) {
        return without_suffix(path, ".idx");
    }
    const std::string prefix = without_suffix(path, ".bin");
    if (!prefix.empty() && exists(prefix + ".idx")) {
        return prefix;
    }
    return exists(path + ".idx") ? path : std::string();
}

/// The files of a comma-separated list of names and patterns; a file whose name is the whole list
/// comes first.
std::vector<std::string> expand(const std::string& list) {
    if (exists(list)) {
        return {list};
    }
    std::vector<std::string> files;
    for (const std::string_view name : split_text(list)) {
        if (!name.empty()) append_matching_files(std::string(name), files);
    }
    if (files.empty()) {
        throw InputFileError("the data path is empty; use the prefix of a dataset");
    }
    return files;
}

[[noreturn]] void fail_missing(const std::string& path, DataFormat format) {
    if (format != DataFormat::automatic && exists(path + ".idx")) {
        throw InputFileError(path + ": is a Megatron dataset (" + path +
                             ".idx and .bin), which defines its token type; remove --data-format");
    }
    if (format != DataFormat::automatic && exists(path + ".bin")) {
        throw InputFileError(path + ": does not exist, but " + path +
                             ".bin does; --data-format requires the full file name");
    }
    if (exists(path + ".bin")) {
        throw InputFileError(path + ".idx: does not exist, but " + path +
                             ".bin does; a Megatron dataset needs both; for tokens without a "
                             "header, use the full file name and --data-format raw-u16 or raw-u32");
    }
    throw InputFileError(path + ": does not exist, and neither do " + path + ".idx and .bin");
}

std::unique_ptr<TokenSource> open_raw(const std::string& name, std::vector<DataFile> files,
                                      TokenType type) {
    TokenSourceInfo info;
    info.name = name;
    info.format = "raw " + std::string(token_type_name(type));
    info.type = type;
    auto tokens = std::make_unique<FileTokens>(std::move(info));
    const auto bytes = static_cast<uint64_t>(token_bytes(type));
    for (DataFile& file : files) {
        if (file.size() % bytes != 0) {
            throw InputFileError(file.path() + ": has " + std::to_string(file.size()) +
                                 " bytes, which is not a multiple of " + std::to_string(bytes) +
                                 "; the file does not hold " + std::string(token_type_name(type)) +
                                 " tokens or is incomplete");
        }
        const auto count = static_cast<int64_t>(file.size() / bytes);
        tokens->append(std::move(file), 0, count);
    }
    return tokens;
}

}  // namespace

DataFormat parse_data_format(std::string_view text) {
    if (text == "auto") {
        return DataFormat::automatic;
    }
    if (text == "raw-u8") {
        return DataFormat::raw_u8;
    }
    if (text == "raw-u16") {
        return DataFormat::raw_u16;
    }
    if (text == "raw-u32") {
        return DataFormat::raw_u32;
    }
    throw UsageError("--data-format " + std::string(text) +
                     ": must be auto, raw-u8, raw-u16 or raw-u32");
}

namespace {

std::unique_ptr<TokenSource> open_without_weights(const std::string& path, DataFormat format) {
    if (format == DataFormat::automatic) {
        const std::string prefix = megatron_prefix(path);
        if (!prefix.empty()) {
            return open_megatron(prefix);
        }
    }
    std::vector<DataFile> files;
    for (const std::string& file : expand(path)) {
        if (const std::string prefix = megatron_prefix(file);
            !prefix.empty() && format == DataFormat::automatic) {
            throw InputFileError(
                path + ": a list with commas or a pattern is for llm.c shards, and " + file +
                " belongs to a Megatron dataset; give weights and prefixes, separated by spaces: "
                "0.5 " +
                prefix + " 0.5 OTHER");
        }
        if (!exists(file)) {
            fail_missing(file, format);
        }
        files.emplace_back(file);
    }
    if (format != DataFormat::automatic) {
        const TokenType type = format == DataFormat::raw_u8    ? TokenType::u8
                               : format == DataFormat::raw_u16 ? TokenType::u16
                                                               : TokenType::u32;
        return open_raw(path, std::move(files), type);
    }
    if (is_llmc_shard(files.front())) {
        return open_llmc_shards(path, std::move(files));
    }
    const FileIdentity found = identify_file(files.front());
    throw InputFileError(files.front().path() + ": is not a token file but " + found.description +
                         "; " + found.remedy);
}

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path, DataFormat format) {
    auto tokens = open_without_weights(path, format);
    const std::string weights = loss_weights::path_beside(tokens->info().name);
    if (!exists(weights)) return tokens;
    return std::make_unique<WeightedTokens>(std::move(tokens), weights);
}

}  // namespace vocabpipe
