// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/llmc_writer.hpp"

#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "src/train/data/llmc_format.hpp"
#include "src/train/data/loss_weights_writer.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

LlmcWriter::LlmcWriter(const std::string& path, int64_t vocab_size, int64_t tokens)
    : file_(path),
      type_(vocab_size <= int64_t{1} << 16 ? llmc::kGpt2.type : llmc::kLlama3.type),
      left_(tokens) {
    if (tokens > std::numeric_limits<int32_t>::max()) {
        throw UsageError("--format llmc: " + std::to_string(tokens) +
                         " tokens, but a shard holds at most 2147483647; use --format megatron");
    }
    const llmc::Family& family = type_ == llmc::kGpt2.type ? llmc::kGpt2 : llmc::kLlama3;
    std::array<int32_t, llmc::kShardHeaderBytes / sizeof(int32_t)> header{};
    header[0] = family.magic;
    header[1] = family.version;
    header[2] = static_cast<int32_t>(tokens);
    file_.write(std::as_bytes(std::span(header)));
}

void LlmcWriter::append(std::span<const int32_t> tokens) {
    left_ -= static_cast<int64_t>(tokens.size());
    if (left_ < 0) throw std::logic_error("LlmcWriter: more tokens than were announced");
    if (type_ == TokenType::u16) {
        narrow_.assign(tokens.begin(), tokens.end());
        file_.write(std::as_bytes(std::span(narrow_)));
    } else {
        file_.write(std::as_bytes(tokens));
    }
}

void LlmcWriter::finish() {
    if (left_ != 0) throw std::logic_error("LlmcWriter: fewer tokens than were announced");
    remove_loss_weights(loss_weights::path_beside(file_.path()));
    file_.publish();
}

}  // namespace vocabpipe
