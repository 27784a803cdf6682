// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/preparation_state.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/support/crc32c.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "src/support/partial_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;  // no sum of these overflows
constexpr int64_t kVersion = 1;
constexpr uint64_t kMostBytes = uint64_t{1} << 26;  // of a state: the names of inputs

/// "crc32c 0123abcd\n", the last line of the file.
std::string checksum_line(std::string_view text) {
    std::array<char, 24> line;
    std::snprintf(line.data(), line.size(), "crc32c %08x\n",
                  static_cast<unsigned>(crc32c(std::as_bytes(std::span(text)))));
    return line.data();
}

PreparationState parse(std::string_view text, const std::string& file) {
    const StrictJson json = StrictJson::parse(text, file);
    json.only({"version", "arguments", "input", "chunks", "documents", "tokens", "entries", "open",
               "bytes", "weights", "weights_bytes", "weights_crc", "bad_lines", "text_bytes",
               "invalid", "zeros", "first_invalid", "model_crc"});
    const auto count = [&](const char* key) { return json.at(key).integer(0, kMost); };
    (void)json.at("version").integer(kVersion, kVersion);
    return {.arguments = json.at("arguments").text(),
            .input = static_cast<size_t>(count("input")),
            .chunks = count("chunks"),
            .position = {.documents = count("documents"),
                         .tokens = count("tokens"),
                         .entries = count("entries"),
                         .open = count("open"),
                         .bytes = count("bytes"),
                         .weights = {.count = count("weights"),
                                     .bytes = count("weights_bytes"),
                                     .checksum = static_cast<uint32_t>(
                                         json.at("weights_crc")
                                             .integer(0, std::numeric_limits<uint32_t>::max()))}},
            .bad_lines = count("bad_lines"),
            .text = {.bytes = count("text_bytes"),
                     .invalid = count("invalid"),
                     .zeros = count("zeros"),
                     .first = json.at("first_invalid").text()},
            .model_crc =
                json.at("model_crc")
                    .integer(PreparationState::kNoModel, std::numeric_limits<uint32_t>::max())};
}

/// The state in a file, or none if the file is damaged.
std::optional<PreparationState> load(const std::string& file) {
    constexpr size_t kChecksumBytes = std::string_view("crc32c 01234567\n").size();
    try {
        const std::string all = read_whole_file(file, "remove it", kMostBytes);
        if (all.size() < kChecksumBytes) return std::nullopt;
        const auto text = std::string_view(all).substr(0, all.size() - kChecksumBytes);
        if (checksum_line(text) != std::string_view(all).substr(text.size())) return std::nullopt;
        return parse(text, file);
    } catch (const InputFileError&) {
        return std::nullopt;
    }
}

/// Whether the model that was trained lies beside the state.
bool has_model(const PreparationState& state, const std::string& prefix) {
    if (state.model_crc == PreparationState::kNoModel) return true;
    try {
        const std::string model = read_whole_file(PartialFile::name_of(prefix + ".model"), "");
        return crc32c(std::as_bytes(std::span(model))) == state.model_crc;
    } catch (const InputFileError&) {
        return false;
    }
}

}  // namespace

void PreparationState::save(const std::string& prefix) const {
    const nlohmann::ordered_json json{{"version", kVersion},
                                      {"arguments", arguments},
                                      {"input", input},
                                      {"chunks", chunks},
                                      {"documents", position.documents},
                                      {"tokens", position.tokens},
                                      {"entries", position.entries},
                                      {"open", position.open},
                                      {"bytes", position.bytes},
                                      {"weights", position.weights.count},
                                      {"weights_bytes", position.weights.bytes},
                                      {"weights_crc", position.weights.checksum},
                                      {"bad_lines", bad_lines},
                                      {"text_bytes", text.bytes},
                                      {"invalid", text.invalid},
                                      {"zeros", text.zeros},
                                      {"first_invalid", text.first},
                                      {"model_crc", model_crc}};
    const std::string line = json_text(json) + "\n";
    OutputFile file(file_of(prefix));
    file.write(line);
    file.write(checksum_line(line));
    file.publish();
    sync_folder_of(file.path());
}

FoundState find_preparation_state(const std::string& prefix, const std::string& arguments,
                                  size_t inputs) {
    const std::string file = PreparationState::file_of(prefix);
    std::error_code error;
    if (!std::filesystem::exists(file, error)) return {};
    std::optional<PreparationState> state = load(file);
    if (!state || state->input > inputs) return {.why_anew = file + ": is damaged"};
    if (state->arguments != arguments) {
        return {.why_anew = file + ": is of other flags, or an input has changed since"};
    }
    if (!MegatronWriter::can_go_on(prefix, state->position) || !has_model(*state, prefix)) {
        return {.why_anew = file + ": the partial files beside it are missing or shorter"};
    }
    return {.state = std::move(state), .why_anew = {}};
}

}  // namespace vocabpipe
