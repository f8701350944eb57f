/* stages.h - the stages of tri_zero that tests go through: 1 to STAGES. Tests only. */
#ifndef TEST_STAGES_H
#define TEST_STAGES_H

#define STAGES 3

#endif
