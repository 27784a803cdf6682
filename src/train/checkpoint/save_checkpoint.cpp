// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/save_checkpoint.hpp"

#include "src/support/output_file.hpp"
#include "src/train/checkpoint/crc32c.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/safetensors_writer.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // on their way from the device to a file
constexpr int64_t kTile = 64;  // elements; rows and columns of a tile stay in the first cache

/// What a rank wrote in one go, and its checksum.
struct Piece {
    uint64_t begin = 0, bytes = 0;
    uint32_t crc = 0;
    uint32_t file = 0;
};

/// out (cols, rows) = in^T of its columns [first, first + count).
template <typename T>
void transpose(const T* in, int64_t rows, int64_t cols, int64_t first, int64_t count, T* out) {
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
        for (int64_t c0 = 0; c0 < count; c0 += kTile) {
            for (int64_t c = c0; c < std::min(count, c0 + kTile); ++c) {
                for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
                    out[c * rows + r] = in[r * cols + first + c];
                }
            }
        }
    }
}

/// One file as a rank sees it.
class RowWriter {
public:
    RowWriter(Device& device, const SafetensorsPlan& plan, const std::string& path, uint32_t number,
              std::vector<Piece>& pieces)
        : device_(device),
          plan_(plan),
          file_(SharedOutputFile::open(path)),
          number_(number),
          pieces_(pieces) {}

    /// Rows from `first_row` of the tensor.
    void write(const std::string& name, Tensor rows, int64_t first_row) {
        const auto at = static_cast<uint64_t>(first_row * rows.cols * size_of(rows.dtype));
        const auto* const data = static_cast<const std::byte*>(rows.data);
        for (int64_t done = 0; done < rows.bytes(); done += kPieceBytes) {
            buffer_.resize(static_cast<size_t>(std::min(kPieceBytes, rows.bytes() - done)));
            device_.download(data + done, buffer_);
            put(plan_.at(name).begin + at + static_cast<uint64_t>(done));
        }
    }

    /// A whole matrix, transposed.
    void write_transposed(const std::string& name, Tensor whole) {
        matrix_.resize(static_cast<size_t>(whole.bytes()));
        const auto* const data = static_cast<const std::byte*>(whole.data);
        for (int64_t done = 0; done < whole.bytes(); done += kPieceBytes) {
            const auto part = std::span(matrix_).subspan(static_cast<size_t>(done));
            device_.download(data + done,
                             part.first(std::min(part.size(), static_cast<size_t>(kPieceBytes))));
        }
        const int64_t row_bytes = whole.rows * size_of(whole.dtype);  // of the transposed matrix
        const int64_t band = std::max<int64_t>(1, kPieceBytes / row_bytes);
        for (int64_t first = 0; first < whole.cols; first += band) {
            const int64_t count = std::min(band, whole.cols - first);
            buffer_.resize(static_cast<size_t>(count * row_bytes));
            if (whole.dtype == DType::fp32) {
                transpose(reinterpret_cast<const uint32_t*>(matrix_.data()), whole.rows, whole.cols,
                          first, count, reinterpret_cast<uint32_t*>(buffer_.data()));
            } else {
                transpose(reinterpret_cast<const uint16_t*>(matrix_.data()), whole.rows, whole.cols,
                          first, count, reinterpret_cast<uint16_t*>(buffer_.data()));
            }
            put(plan_.at(name).begin + static_cast<uint64_t>(first * row_bytes));
        }
    }

    void sync() { file_.sync(); }

private:
    void put(uint64_t offset) {
        file_.write_at(offset, buffer_);
        pieces_.push_back(
            {.begin = offset, .bytes = buffer_.size(), .crc = crc32c(buffer_), .file = number_});
    }

    Device& device_;
    const SafetensorsPlan& plan_;
    SharedOutputFile file_;
    uint32_t number_;
    std::vector<Piece>& pieces_;
    std::vector<std::byte> buffer_, matrix_;
};

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

void create_with_header(const std::string& path, const SafetensorsPlan& plan) {
    SharedOutputFile file = SharedOutputFile::create(path, plan.file_bytes());
    file.write_at(0, as_bytes(plan.header()));
    file.sync();
}

void write_whole(const std::string& path, const std::string& text) {
    SharedOutputFile file = SharedOutputFile::create(path, text.size());
    file.write_at(0, as_bytes(text));
    file.sync();
}

/// Checksums of a file from those of all ranks' pieces, which are sorted and lie end to end.
FileChecksums checksums_of(const SafetensorsPlan& plan, std::span<const Piece> pieces) {
    FileChecksums sums{.bytes = plan.file_bytes(), .head = crc32c(as_bytes(plan.header()))};
    for (const StoredTensor& tensor : plan.tensors()) {
        uint64_t at = tensor.begin;
        uint32_t crc = 0;
        for (; !pieces.empty() && at < tensor.end && pieces.front().begin == at;
             pieces = pieces.subspan(1)) {
            crc = crc32c_combine(crc, pieces.front().crc, pieces.front().bytes);
            at += pieces.front().bytes;
        }
        if (at != tensor.end) {
            throw Error(ExitCode::failed, "tensor " + tensor.name + " has rows of no rank");
        }
        sums.tensors[tensor.name] = crc;
    }
    return sums;
}

}  // namespace

uint64_t save_checkpoint(Communicator& communicator, const std::string& root, SaveFolder* folder,
                         ModelRank& model, TrainingState state) {
    const ModelConfig& config = model.config();
    const SafetensorsPlan weights(model_file_tensors(config), {{"format", "pt"}});
    const SafetensorsPlan optimizer(optimizer_file_tensors(config),
                                    {{"format", "vocabpipe optimizer state"}});
    const std::string partial = partial_folder(root, state.step);
    const auto path = [&](std::string_view name) { return partial + "/" + std::string(name); };
    uint64_t total = 0;
    try {
        communicator.agree([&] {
            if (folder == nullptr) return;
            folder->begin(state.step);
            create_with_header(path(kModelFile), weights);
            create_with_header(path(kOptimizerFile), optimizer);
        });
        std::vector<Piece> pieces;
        communicator.agree([&] {
            RowWriter to_model(model.device(), weights, path(kModelFile), 0, pieces);
            RowWriter to_optimizer(model.device(), optimizer, path(kOptimizerFile), 1, pieces);
            const std::vector<std::vector<ModelTensor>> stored = model_tensors(config);
            const std::vector<Parameter>& parameters = model.store().parameters();
            for (size_t i = 0; i < parameters.size(); ++i) {
                const Parameter& p = parameters[i];
                if (p.counted_elsewhere) continue;  // the tied copy: written with the embedding
                for (const ModelTensor& t : stored[static_cast<size_t>(model.store().ids()[i])]) {
                    const HeldRows held = held_rows(p, t);
                    if (t.transposed) {
                        to_model.write_transposed(t.name, p.weight);
                    } else {
                        to_model.write(t.name, held.of(p.weight), held.first);
                    }
                    to_optimizer.write(exp_avg_name(t.name), held.of(p.exp_avg), held.first);
                    to_optimizer.write(exp_avg_sq_name(t.name), held.of(p.exp_avg_sq), held.first);
                    if (p.master.data != p.weight.data) {
                        to_optimizer.write(master_name(t.name), held.of(p.master), held.first);
                    }
                }
            }
            to_model.sync();
            to_optimizer.sync();
        });
        const auto all = communicator.all_gather(std::as_bytes(std::span(pieces)));
        communicator.agree([&] {
            if (folder == nullptr) return;
            std::vector<Piece> sorted;
            for (const std::vector<std::byte>& part : all) {
                const size_t count = part.size() / sizeof(Piece);
                sorted.resize(sorted.size() + count);
                std::memcpy(sorted.data() + sorted.size() - count, part.data(), part.size());
            }
            std::sort(sorted.begin(), sorted.end(), [](const Piece& a, const Piece& b) {
                return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
            });
            const auto second = std::find_if(sorted.begin(), sorted.end(),
                                             [](const Piece& p) { return p.file == 1; });
            const std::string text = print_model_config(config);
            state.files[std::string(kModelFile)] = checksums_of(weights, {sorted.begin(), second});
            state.files[std::string(kOptimizerFile)] =
                checksums_of(optimizer, {second, sorted.end()});
            state.files[std::string(kConfigFile)] = {.bytes = text.size(),
                                                     .head = crc32c(as_bytes(text))};
            for (const auto& [name, file] : state.files) total += file.bytes;
            write_whole(path(kConfigFile), text);
            write_whole(path(kTrainingFile), print_training_state(state));
            folder->publish(state.step);
        });
    } catch (...) {
        if (folder != nullptr) folder->abandon(state.step);
        throw;
    }
    return total;
}

}  // namespace vocabpipe
