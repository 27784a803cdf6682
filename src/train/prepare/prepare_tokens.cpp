// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/prepare_tokens.hpp"

#include <unistd.h>

#include <span>
#include <utility>

#include "src/support/crc32c.hpp"
#include "src/support/partial_file.hpp"
#include "src/train/prepare/encoding_pipeline.hpp"
#include "src/train/prepare/read_chunks.hpp"
#include "src/train/text/text_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWaitingBytesPerWorker = size_t{4} << 20;

class Preparation {
public:
    Preparation(const PreparationOptions& options, const Tokenizer& tokenizer)
        : options_(options),
          tokenizer_(tokenizer),
          begin_(options.from.value_or(PreparationState{})),
          state_(begin_),
          writer_(options.output, tokenizer.vocab_size(),
                  options.inputs.front().chats ? std::optional(LossWeightType::u8) : std::nullopt,
                  begin_.position),
          state_file_(options.output) {
        state_.arguments = options.arguments;
        const std::string& model = options.trained_model;
        if (model.empty()) return;
        const auto bytes = std::as_bytes(std::span(model));
        // A preparation that goes on has read the model from this file.
        model_.emplace(options.output + ".model",
                       options.from ? static_cast<int64_t>(model.size()) : 0);
        if (!options.from) model_->write(bytes);
        model_->sync();
        state_.model_crc = crc32c(bytes);
    }

    Prepared run() {
        write_all();
        if (writer_.tokens() == 0) {
            throw InputFileError(about_inputs(options_.inputs) +
                                 ": no text found, so there is nothing to write");
        }
        options_.check_text(state_.text);
        return {.totals = publish(), .text = state_.text, .bad_lines = state_.bad_lines};
    }

private:
    /// Removes the file of states: a kill leaves it, all other ends do not.
    struct StateFile {
        explicit StateFile(std::string prefix)
            : path(PreparationState::file_of(std::move(prefix))) {}
        ~StateFile() { ::unlink(path.c_str()); }
        StateFile(const StateFile&) = delete;
        StateFile& operator=(const StateFile&) = delete;
        std::string path;
    };

    void write_all() {
        EncodingPipeline pipeline(
            {.read = [this](const auto& take, const auto& poll) { read(take, poll); },
             .encode =
                 [this](const TextChunk& chunk, const auto& poll) {
                     return encode_chunk(chunk, options_.inputs[chunk.input], tokenizer_, poll);
                 },
             .workers = options_.workers,
             .most_waiting_bytes = kWaitingBytesPerWorker * static_cast<size_t>(options_.workers)});
        int64_t bytes = 0;
        for (size_t i = 0; i < begin_.input; ++i) bytes += text_file_bytes(options_.inputs[i].path);
        Clock::time_point saved = Clock::now();
        while (const auto item = pipeline.next(options_.poll)) {
            options_.poll();
            note_bad_lines(*item);
            for (const EncodedChunk::Piece& piece : item->encoded.pieces) {
                if (piece.weights.empty()) {
                    writer_.append(piece.ids);
                } else {
                    writer_.append(piece.ids, piece.weights);
                }
                if (piece.ends_document) writer_.end_document();
            }
            count(item->chunk);
            bytes += item->chunk.file_bytes;
            options_.progress(bytes, writer_.tokens());
            if (Clock::now() - saved < options_.state_every) continue;
            state_.position = writer_.sync();
            state_.save(options_.output);
            saved = Clock::now();
        }
    }

    /// Skips what is written: reading it again takes little time beside encoding it.
    void read(const std::function<void(TextChunk)>& take, const std::function<void()>& poll) const {
        int64_t written = begin_.chunks;
        int64_t skipped_bytes = 0;
        for (size_t i = begin_.input; i < options_.inputs.size(); ++i) {
            read_chunks(
                options_.inputs, i, options_.separator,
                [&](TextChunk chunk) {
                    if (written > 0) {
                        --written;
                        skipped_bytes += chunk.file_bytes;
                        return;
                    }
                    chunk.file_bytes += std::exchange(skipped_bytes, 0);
                    take(std::move(chunk));
                },
                poll);
        }
    }

    void note_bad_lines(const EncodingPipeline::Item& item) {
        const TextInput& input = options_.inputs[item.chunk.input];
        int64_t count = state_.bad_lines;
        for (const EncodedChunk::BadLine& bad : item.encoded.bad_lines) {
            const std::string line = about_line(input, bad.line, bad.reason);
            if (options_.max_bad_lines == 0) throw InputFileError(line);
            if (count++ < kNamedBadLines) options_.bad_line(line);
        }
        state_.bad_lines += item.encoded.bad_line_count;
        if (state_.bad_lines <= options_.max_bad_lines) return;
        throw InputFileError(input.path + ": is where more than --max-bad-lines " +
                             std::to_string(options_.max_bad_lines) +
                             " lines had no document; correct them, or set a higher limit");
    }

    void count(const TextChunk& chunk) {
        ++state_.chunks;
        if (!chunk.ends_input) return;
        state_.text.add(options_.inputs[chunk.input].path, chunk.check);
        ++state_.input;
        state_.chunks = 0;
    }

    MegatronTotals publish() {
        options_.publish_beside();
        try {
            return writer_.finish();
        } catch (...) {
            options_.remove_beside();
            throw;
        }
    }

    const PreparationOptions& options_;
    const Tokenizer& tokenizer_;
    const PreparationState begin_;
    PreparationState state_;
    MegatronWriter writer_;  ///< locks the prefix, so the state below is ours
    StateFile state_file_;
    std::optional<PartialFile> model_;
};

}  // namespace

Prepared prepare_tokens(const PreparationOptions& options, const Tokenizer& tokenizer) {
    return Preparation(options, tokenizer).run();
}

}  // namespace vocabpipe
