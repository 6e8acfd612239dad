"""Who may: keys, the file of authorized keys, permissions, the license, challenges, tokens and limits."""
