"""What users ask about jobs, whoever asks: submitting, cancelling, explaining, listing."""
