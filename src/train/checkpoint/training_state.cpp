// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/training_state.hpp"

#include "src/support/crc32c.hpp"
#include "src/support/json_text.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <charconv>
#include <limits>
#include <span>

namespace vocabpipe {

namespace {

constexpr std::string_view kFormat = "vocabpipe training state";
constexpr int64_t kVersion = 1;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr size_t kMostFlags = 1000;

std::string hex(uint32_t value) {
    std::string text(8, '0');
    for (size_t i = 8; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 0xfU];
    return text;
}

template <typename T>
T number_in(const StrictJson& value, int base, const char* what) {
    const std::string text = value.text();
    T number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc() || end != text.data() + text.size()) {
        value.fail(std::string("must be ") + what);
    }
    return number;
}

uint32_t checksum(const StrictJson& value) {
    return number_in<uint32_t>(value, 16, "a CRC-32C as 8 hexadecimal digits");
}

uint32_t checksum_of(const std::string& text) {
    return crc32c(std::as_bytes(std::span(text)));
}

}  // namespace

std::string print_training_state(const TrainingState& state) {
    nlohmann::json json;
    json["format"] = kFormat;
    json["version"] = kVersion;
    json["step"] = state.step;
    json["consumed_samples"] = state.consumed_samples;
    json["seq_length"] = state.seq_length;
    json["seed"] = std::to_string(state.seed);  // 64 bits, which JSON readers round
    json["dtype"] = state.dtype;
    json["flags"] = state.flags;
    json["files"] = nlohmann::json::object();
    for (const auto& [name, file] : state.files) {
        nlohmann::json& entry = json["files"][name];
        entry["bytes"] = file.bytes;
        entry["head"] = hex(file.head);
        entry["tensors"] = nlohmann::json::object();
        for (const auto& [tensor, crc] : file.tensors) entry["tensors"][tensor] = hex(crc);
    }
    json["crc32c"] = hex(checksum_of(json_text(json)));  // of this document without the key
    return json_text(json, 1) + "\n";
}

TrainingState parse_training_state(std::string_view text, const std::string& path) {
    const StrictJson json = StrictJson::parse(text, path);
    if (!json.has("format") || json.at("format").text() != kFormat) {
        json.fail("is not a training state of this program; set --load to another folder");
    }
    nlohmann::json rest = nlohmann::json::parse(text);
    rest.erase("crc32c");
    const bool whole = checksum(json.at("crc32c")) == checksum_of(json_text(rest));
    if (const int64_t version = json.at("version").integer(1, kMost); version != kVersion) {
        const std::string what = "is " + std::to_string(version) + ", but this program reads " +
                                 std::to_string(kVersion) + "; use a newer program";
        if (whole) throw OtherVersionError(path + ": version: " + what);
        json.at("version").fail(what);
    }
    if (!whole) json.fail("is damaged; its checksum does not match; load an older step");
    TrainingState state;
    state.step = json.at("step").integer(1, kMost);
    state.consumed_samples = json.at("consumed_samples").integer(0, kMost / 4);  // may grow
    state.seq_length = json.at("seq_length").integer(1, kMost);
    state.seed = number_in<uint64_t>(json.at("seed"), 10, "an integer in quotes");
    state.dtype = json.at("dtype").text();
    if (state.dtype != "fp32" && state.dtype != "bf16") {
        json.at("dtype").fail("must be fp32 or bf16; use a newer program");
    }
    for (const StrictJson& flag : json.at("flags").items(kMostFlags)) {
        state.flags.push_back(flag.text());
    }
    for (const auto& [name, entry] : json.at("files").members()) {
        FileChecksums& file = state.files[name];
        file.bytes = static_cast<uint64_t>(entry.at("bytes").integer(0, kMost));
        file.head = checksum(entry.at("head"));
        for (const auto& [tensor, crc] : entry.at("tensors").members()) {
            file.tensors[tensor] = checksum(crc);
        }
    }
    return state;
}

}  // namespace vocabpipe
