// SPDX-License-Identifier: Apache-2.0
// Numbers as the files and lines of training have them.
#ifndef MODEL_NUMBERS_H_
#define MODEL_NUMBERS_H_

#include <string>

namespace millrace::model {

// The shortest decimals that give the double back, as Python prints it: "1.0", "1e-05", "nan".
std::string PythonNumber(double value);
// "%.4f", or "%.4e" for what is small: a value on the console.
std::string ConsoleNumber(double value);

}  // namespace millrace::model

#endif  // MODEL_NUMBERS_H_
