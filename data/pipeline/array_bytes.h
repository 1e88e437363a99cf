// SPDX-License-Identifier: Apache-2.0
// Arrays in the formats of files, from their bytes.
#ifndef DATA_PIPELINE_ARRAY_BYTES_H_
#define DATA_PIPELINE_ARRAY_BYTES_H_

#include <map>
#include <string>
#include <string_view>

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Elements of plain bytes as they lie in a file, brought into the machine's byte order and into
// row-major order. DataLoss, naming `name`, unless `bytes` is as long as dtype and shape say.
StatusOr<Tensor> TensorFromBytes(DataType dtype, const Shape& shape, std::string_view bytes,
                                 bool big_endian, bool column_major, std::string_view name);

// One array in NumPy's npy format (versions 1 to 3). Fixed-length strings ('S', 'U') become
// strings without the zeros at their ends. DataLoss for what is damaged, Unimplemented for other
// types, naming `name`.
StatusOr<Tensor> ParseNpy(std::string_view bytes, std::string_view name);

// The files in a zip archive, as they lie or deflated, by name. Every checksum is looked at.
// DataLoss for what is damaged; Unimplemented for encryption and other ways to pack.
StatusOr<std::map<std::string, std::string>> ParseZip(std::string_view bytes,
                                                      std::string_view name);

}  // namespace millrace

#endif  // DATA_PIPELINE_ARRAY_BYTES_H_
